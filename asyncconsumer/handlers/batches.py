"""Batches for handlers that take many records at once."""

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
    """Give the handler up to `max_records` of one partition, `max_wait_ms` after the first came."""

    max_records: int = 100
    max_wait_ms: int = 50

    def __post_init__(self) -> None:
        whole_number("max_records", self.max_records, 1)
        whole_number("max_wait_ms", self.max_wait_ms, 0)


@dataclass(slots=True, eq=False)
class _BatchQueue:
    """Where batches of some records are made, one after the other."""

    waiting: deque[Record] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None
    busy: bool = False  # with a batch: none is made before that is finished


class BatchQueues:
    """An order whose items are batches. `lane_of` says in which lane a record's batch is made.

    By key there are as many lanes as workers and keys are divided among them, so records of one
    key are always in the same. `wake` is called when time has made a batch ready.
    """

    def __init__(self, batch: Batch, ordering: str, lanes: int, wake: Callable[[], None]) -> None:
        self._batch = batch
        self._lanes = lanes
        self._wake = wake
        self._one_at_a_time = ordering != "none"
        self._by_key = ordering == "key"

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """Put each into its lane, and make batches of those that are full."""
        for record in records:
            number = self._lane_of(record)
            lane: _BatchQueue | None = share.lanes.get(number)
            if lane is None:
                lane = share.lanes[number] = _BatchQueue()
            lane.waiting.append(record)
            if not lane.busy:
                self._look(share, number, lane, ready)

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """Its lane may go on."""
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
        """A batch if it is full; else when its time has come."""
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
