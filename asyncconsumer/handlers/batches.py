"""Batches for handlers that process many records per call."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from asyncconsumer.config.validation import whole_number
from asyncconsumer.handlers.ordering import Ready, Unordered
from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.records.decoding import Record


@dataclass(frozen=True, slots=True)
class Batch:
    """The option for batches: up to `max_records` records of one partition.

    A smaller batch is processed after its first record has waited for `max_wait_ms`.
    """

    max_records: int = 100
    max_wait_ms: int = 50

    def __post_init__(self) -> None:
        whole_number("max_records", self.max_records, 1)
        whole_number("max_wait_ms", self.max_wait_ms, 0)


@dataclass(slots=True, eq=False)
class _BatchQueue:
    """A queue of records of one partition that will be processed in batches."""

    waiting: deque[Record] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None
    busy: bool = False  # a batch of this queue is in flight, and the next one waits for it


class BatchQueues(Unordered):
    """An `Ordering` whose items are batches of records.

    With key order, each partition has up to as many queues as there are workers. Keys are hashed to
    queues, so all records of a key are in the same queue. `wake` is called when a timer has made a
    batch ready.
    """

    def __init__(
        self, batch: Batch, ordering: str, max_queues: int, wake: Callable[[], None]
    ) -> None:
        self._batch = batch
        self._max_queues = max_queues
        self._wake = wake
        self._one_at_a_time = ordering != "none"
        self._by_key = ordering == "key"

    def add(self, work: PartitionWork, records: Sequence[Record], ready: Ready) -> None:
        """Append each record to its queue, and make full batches ready."""
        work.ledger.start_all()
        for record in records:
            number = self._number_of(record)
            queue: _BatchQueue | None = work.busy.get(number)
            if queue is None:
                queue = work.busy[number] = _BatchQueue()
            queue.waiting.append(record)
            if not queue.busy:
                self._look(work, number, queue, ready)

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Make the next batch of the queue that the processed batch `item` came from.

        If the queue has too few records, start its timer.
        """
        assert isinstance(item, list)
        number = self._number_of(item[0])
        queue: _BatchQueue | None = work.busy.get(number)
        if self._one_at_a_time and queue is not None:
            queue.busy = False
            if queue.waiting:
                self._look(work, number, queue, ready)
            else:
                del work.busy[number]

    def _number_of(self, record: Record) -> Hashable:
        if not self._by_key:
            return None
        return (record.offset if record.key is None else hash(record.key)) % self._max_queues

    def _look(
        self, work: PartitionWork, number: Hashable, queue: _BatchQueue, ready: Ready
    ) -> None:
        """Make a batch of `queue` ready if it is full. Otherwise start the timer of the queue.

        When the timer ends, the waiting records become a smaller batch.
        """
        if len(queue.waiting) >= self._batch.max_records:
            self._make(work, queue, ready)
        elif queue.timer is None:
            loop = asyncio.get_running_loop()
            seconds = self._batch.max_wait_ms / 1000
            queue.timer = loop.call_later(seconds, self._make_late, work, queue, ready)
            work.timers.add(queue.timer)

    def _make_late(self, work: PartitionWork, queue: _BatchQueue, ready: Ready) -> None:
        if queue.timer is not None:
            work.timers.discard(queue.timer)
            queue.timer = None
        if queue.waiting and not queue.busy:
            self._make(work, queue, ready)
            self._wake()

    def _make(self, work: PartitionWork, queue: _BatchQueue, ready: Ready) -> None:
        if queue.timer is not None:
            queue.timer.cancel()
            work.timers.discard(queue.timer)
            queue.timer = None
        count = min(len(queue.waiting), self._batch.max_records)
        queue.busy = self._one_at_a_time
        ready((work, [queue.waiting.popleft() for _ in range(count)]))
