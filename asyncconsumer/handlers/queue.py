"""The work queue of one handler: records of its partitions, bounded, taken by its workers."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asyncconsumer.handlers.completion_timer import CompletionTimer
from asyncconsumer.handlers.ordering import Ordering
from asyncconsumer.handlers.partition_work import (
    Item,
    PartitionWork,
    WorkState,
    first_of,
    records_of,
    size_of,
)
from asyncconsumer.records.decoding import Record
from asyncconsumer.streams.stream import Fence
from asyncconsumer.types import TopicPartition

_WOKEN_AT_ONCE: Final = 2  # each of them wakes two more while items are ready
_SECONDS_BETWEEN_LOOKS: Final = 0.05


@dataclass(slots=True)
class Load:
    """Number and bytes of the records in flight, with their limits."""

    max_count: int
    max_size: int
    count: int = 0
    size: int = 0


class WorkQueue:
    """The records that one handler has to process.

    All changes are synchronous. Workers wait in `wait_for_work`.

    A partition may add records while it has less in flight than the limits leave free. With large
    limits, one stuck partition therefore holds about half and leaves the rest to others.
    """

    def __init__(
        self, max_count: int, max_size: int, order: Callable[[Callable[[], None]], Ordering]
    ) -> None:
        self.load: Final = Load(max_count, max_size)
        self.ready: Final[deque[tuple[PartitionWork, Item]]] = deque()
        self.running: Final[dict[asyncio.Task[Any], tuple[PartitionWork, Item]]] = {}
        self.cut: Final[set[asyncio.Task[Any]]] = set()  # cancelled to stop their item
        self.shares: Final[dict[TopicPartition, PartitionWork]] = {}
        self.stopped = False  # no more items are started
        self.pace: Final = CompletionTimer()
        self.order: Final = order(self.wake)  # it may make items ready later, by a timer
        self._idle: list[asyncio.Future[None]] = []
        self._waiting: set[PartitionWork] = set()  # partitions that wait for room
        self._ringing = False
        self._quiet = asyncio.Event()  # set when an item ends after `stop`

    # --- partitions ------------------------------------------------------------------------------

    def open(self, partition: TopicPartition, start: int, fence: Fence | None) -> PartitionWork:
        """Register an assigned partition that is read from offset `start`."""
        former = self.shares.get(partition)
        while former is not None and not self._is_running(former):
            former = former.former
        share = self.shares[partition] = PartitionWork(partition, start, fence, former)
        return share

    def hold(self, share: PartitionWork) -> None:
        """Start no more items of a partition."""
        share.hold()

    def release(self, share: PartitionWork) -> None:
        """Resume a held partition."""
        self.ready.extend((share, item) for item in share.release())
        self.wake()

    def end(self, share: PartitionWork) -> None:
        """Drop the waiting items of a partition and cancel the running ones."""
        _count(share, self.load, -share.count, -share.size)
        share.end()
        self.cancel(share)
        self._waiting.discard(share)
        self._ring_soon()

    def cancel(self, share: PartitionWork | None = None) -> dict[TopicPartition, list[int]]:
        """Cancel the running items of one partition or of all. Return their offsets."""
        cancelled: dict[TopicPartition, list[int]] = {}
        for task, (mine, item) in self.running.items():
            if share in (None, mine) and task not in self.cut:
                self.cut.add(task)
                task.cancel()
                offsets = cancelled.setdefault(mine.partition, [])
                offsets.extend(record.offset for record in records_of(item))
        return cancelled

    def pending_retries(self) -> dict[TopicPartition, list[int]]:
        """Return the offsets of the records that failed and wait for their next attempt."""
        ours = (share for share in self.shares.values() if share.state is not WorkState.OVER)
        return {share.partition: offsets for share in ours if (offsets := share.pending_retries)}

    async def settled(self, share: PartitionWork) -> None:
        """Wait until no item of a partition is running."""
        while self._is_running(share):
            share.bell.clear()
            await share.bell.wait()

    def _is_running(self, share: PartitionWork) -> bool:
        return any(mine is share for mine, _ in self.running.values())

    # --- adding records --------------------------------------------------------------------------

    def has_room(self, share: PartitionWork) -> bool:
        """Return whether more records of a partition may be submitted."""
        load = self.load
        return (
            share.state is WorkState.OPEN
            and not self.stopped
            and share.count < load.max_count - load.count
            and share.size < load.max_size - load.size
        )

    async def room(self, share: PartitionWork) -> bool:
        """Wait until more records of a partition may be submitted.

        Return False if the partition is no longer assigned. If it was assigned before, wait until
        the items of that time have ended. Otherwise two records of a key might run at once.
        """
        if share.former is not None:
            await self.settled(share.former)
            share.alone()
        while share.state is not WorkState.OVER:
            if self.has_room(share):
                return True
            self._waiting.add(share)
            share.bell.clear()
            await share.bell.wait()
            self._waiting.discard(share)
        return False

    async def emptied(self, share: PartitionWork) -> bool:
        """Wait until all submitted records of a partition are processed.

        Return False if the partition is no longer assigned.
        """
        while share.count and share.state is not WorkState.OVER:  # noqa: ASYNC110 - rare
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return share.state is not WorkState.OVER

    def submit(self, share: PartitionWork, records: Sequence[Record], size: int) -> None:
        """Add records of a partition. The caller awaits `room` first."""
        ledger = share.ledger
        if ledger.knows_finished:
            wanted = [record for record in records if not ledger.is_finished(record.offset)]
        else:
            wanted = list(records)
        begin = ledger.begin
        for record in wanted:
            begin(record.offset)
        if len(wanted) < len(records):
            size = sum(map(size_of, wanted))
        _count(share, self.load, len(wanted), size)
        self.order.add(share, wanted, self.ready.append)
        self.wake()

    # --- for workers -----------------------------------------------------------------------------

    async def wait_for_work(self) -> None:
        """Wait until an item is ready, and wake more workers if there are several."""
        while not self.ready or self.stopped:
            waiting = asyncio.get_running_loop().create_future()
            self._idle.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                if waiting in self._idle:
                    self._idle.remove(waiting)
                raise
        if len(self.ready) > 1:
            self.wake()

    def wake(self) -> None:
        """Wake idle workers to take ready items."""
        if not self.running:
            self.pace.begin(asyncio.get_running_loop().time())
        idle = self._idle
        for _ in range(min(_WOKEN_AT_ONCE, len(self.ready), len(idle))):
            idle.pop().set_result(None)

    async def may_begin(self, share: PartitionWork, item: Item) -> bool:
        """Return whether an item may be started; if not, park, requeue or drop it.

        No item is started after the deadline of its partition, because another member may own the
        partition by then. Wait until the deadline is extended.
        """
        while True:
            if share.state is WorkState.HELD:
                share.parked.append(item)
            elif self.stopped:
                self.ready.appendleft((share, item))
                return False
            if share.state is not WorkState.OPEN:
                return False
            if not share.deadline_passed:
                return True
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)  # rare; no event signals a new deadline

    def again(self, share: PartitionWork, item: Item, seconds: float) -> None:
        """Make an item ready again after `seconds`. It keeps its place in the order."""

        def ready() -> None:
            share.timers.discard(timer)
            self.ready.append((share, item))
            self.wake()

        timer = asyncio.get_running_loop().call_later(seconds, ready)
        share.timers.add(timer)

    def finish(self, share: PartitionWork, item: Item) -> None:
        """Mark the records of an item as processed and make its successors ready."""
        if share.state is WorkState.OVER:
            return
        if isinstance(item, list):
            self.finish_some(share, [one for one in item if share.ledger.is_unfinished(one.offset)])
        else:
            share.ledger.finish(item.offset)
            _count(share, self.load, -1, -size_of(item))
        if share.attempts:
            share.attempts.pop(first_of(item).offset, None)
        self.order.done(share, item, self.ready.append)
        if self._waiting and not self._ringing:
            self._ring_soon()

    def finish_some(self, share: PartitionWork, records: Sequence[Record]) -> None:
        """Mark some records of a batch as processed, independently of the others."""
        if share.state is WorkState.OVER:
            return
        for record in records:
            share.ledger.finish(record.offset)
        _count(share, self.load, -len(records), -sum(map(size_of, records)))

    def stop_running(self, task: asyncio.Task[Any], share: PartitionWork) -> None:
        """Note that a worker has ended its item, processed or not."""
        del self.running[task]
        self.pace.end(asyncio.get_running_loop().time())
        if share.state is not WorkState.OPEN:
            share.bell.set()
        if self.stopped:
            self._quiet.set()

    # --- stopping --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Start no more items."""
        self.stopped = True

    async def quiet(self) -> None:
        """Wait until no item is running."""
        while self.running:
            self._quiet.clear()
            await self._quiet.wait()

    def _ring_soon(self) -> None:
        """Notify partitions that wait for room, at most once per iteration of the event loop."""
        if self._waiting:
            self._ringing = True
            asyncio.get_running_loop().call_soon(self._ring)

    def _ring(self) -> None:
        self._ringing = False
        waiting: Iterable[PartitionWork] = list(self._waiting)
        for share in waiting:
            if self.has_room(share):
                share.bell.set()


def _count(share: PartitionWork, load: Load, count: int, size: int) -> None:
    share.count += count
    share.size += size
    load.count += count
    load.size += size
