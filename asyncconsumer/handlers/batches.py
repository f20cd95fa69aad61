"""Batches for handlers that process many records per call."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from asyncconsumer.config.validation import whole_number
from asyncconsumer.handlers.ordering import Ready
from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.records.decoding import Record


@dataclass(frozen=True, slots=True)
class Batch:
    """The size of batches: up to `max_records` of one partition.

    A smaller batch is processed `max_wait_ms` after its first record.
    """

    max_records: int = 100
    max_wait_ms: int = 50

    def __post_init__(self) -> None:
        whole_number("max_records", self.max_records, 1)
        whole_number("max_wait_ms", self.max_wait_ms, 0)


@dataclass(slots=True, eq=False)
class _BatchQueue:
    """A queue of records that are made into batches."""

    waiting: deque[Record] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None
    busy: bool = False  # a batch of this queue is in flight, and the next one waits for it


class BatchQueues:
    """An `Ordering` whose items are batches.

    With key order, each partition has up to as many queues as there are workers. Keys are hashed to
    queues, so all records of a key are in the same queue. `wake` is called when a timer has made a
    batch ready.
    """

    def __init__(self, batch: Batch, ordering: str, lanes: int, wake: Callable[[], None]) -> None:
        self._batch = batch
        self._lanes = lanes
        self._wake = wake
        self._one_at_a_time = ordering != "none"
        self._by_key = ordering == "key"

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """Append each record to its queue and make full batches ready."""
        for record in records:
            number = self._lane_of(record)
            lane: _BatchQueue | None = share.lanes.get(number)
            if lane is None:
                lane = share.lanes[number] = _BatchQueue()
            lane.waiting.append(record)
            if not lane.busy:
                self._look(share, number, lane, ready)

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """Let the queue of a processed batch make its next one."""
        assert isinstance(item, list)
        number = self._lane_of(item[0])
        lane: _BatchQueue | None = share.lanes.get(number)
        if self._one_at_a_time and lane is not None:
            lane.busy = False
            if lane.waiting:
                self._look(share, number, lane, ready)
            else:
                del share.lanes[number]

    def _lane_of(self, record: Record) -> Hashable:
        if not self._by_key:
            return None
        return (record.offset if record.key is None else hash(record.key)) % self._lanes

    def _look(
        self, share: PartitionWork, number: Hashable, lane: _BatchQueue, ready: Ready
    ) -> None:
        """Make a batch if it is full; otherwise start the timer."""
        if len(lane.waiting) >= self._batch.max_records:
            self._make(share, lane, ready)
        elif lane.timer is None:
            loop = asyncio.get_running_loop()
            seconds = self._batch.max_wait_ms / 1000
            lane.timer = loop.call_later(seconds, self._make_late, share, lane, ready)
            share.timers.add(lane.timer)

    def _make_late(self, share: PartitionWork, lane: _BatchQueue, ready: Ready) -> None:
        if lane.timer is not None:
            share.timers.discard(lane.timer)
            lane.timer = None
        if lane.waiting and not lane.busy:
            self._make(share, lane, ready)
            self._wake()

    def _make(self, share: PartitionWork, lane: _BatchQueue, ready: Ready) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
            share.timers.discard(lane.timer)
            lane.timer = None
        count = min(len(lane.waiting), self._batch.max_records)
        lane.busy = self._one_at_a_time
        ready((share, [lane.waiting.popleft() for _ in range(count)]))
