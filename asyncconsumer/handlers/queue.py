"""What one handler has to do: taken in from partitions, bounded, and handed to its workers."""

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

_WOKEN_AT_ONCE: Final = 2  # each wakes as many again, so all are awake soon, and never for nothing
_SECONDS_BETWEEN_LOOKS: Final = 0.05


@dataclass(slots=True)
class Load:
    """How much is in hand, and how much may be."""

    max_count: int
    max_size: int
    count: int = 0
    size: int = 0


class WorkQueue:
    """The work of one handler. All changes are synchronous; workers wait in `wait_for_work`.

    A partition may have as much in hand as the limits leave free, so one that is stuck leaves half
    to a second, a third to a third, and something to everyone.
    """

    def __init__(
        self, max_count: int, max_size: int, order: Callable[[Callable[[], None]], Ordering]
    ) -> None:
        self.load: Final = Load(max_count, max_size)
        self.ready: Final[deque[tuple[PartitionWork, Item]]] = deque()
        self.running: Final[dict[asyncio.Task[Any], tuple[PartitionWork, Item]]] = {}
        self.cut: Final[set[asyncio.Task[Any]]] = set()  # cancelled, for an item's sake
        self.shares: Final[dict[TopicPartition, PartitionWork]] = {}
        self.stopped = False  # nothing more is begun
        self.pace: Final = CompletionTimer()
        self.order: Final = order(self.wake)  # which may make something ready later
        self._idle: list[asyncio.Future[None]] = []
        self._waiting: set[PartitionWork] = set()  # for room
        self._ringing = False
        self._quiet = asyncio.Event()  # rung when something was finished after the end

    # --- partitions ------------------------------------------------------------------------------

    def open(self, partition: TopicPartition, start: int, fence: Fence | None) -> PartitionWork:
        """A partition is ours, from there on."""
        former = self.shares.get(partition)
        while former is not None and not self._is_running(former):
            former = former.former
        share = self.shares[partition] = PartitionWork(partition, start, fence, former)
        return share

    def hold(self, share: PartitionWork) -> None:
        """Begin nothing more of it."""
        share.hold()

    def release(self, share: PartitionWork) -> None:
        """Go on with it."""
        self.ready.extend((share, item) for item in share.release())
        self.wake()

    def end(self, share: PartitionWork) -> None:
        """It is not ours any more: forget what waits, cancel what runs."""
        _count(share, self.load, -share.count, -share.size)
        share.end()
        self.cancel(share)
        self._waiting.discard(share)
        self._ring_soon()

    def cancel(self, share: PartitionWork | None = None) -> dict[TopicPartition, list[int]]:
        """Cancel what runs, of one partition or of all; what that was."""
        cancelled: dict[TopicPartition, list[int]] = {}
        for task, (mine, item) in self.running.items():
            if share in (None, mine) and task not in self.cut:
                self.cut.add(task)
                task.cancel()
                offsets = cancelled.setdefault(mine.partition, [])
                offsets.extend(record.offset for record in records_of(item))
        return cancelled

    def pending_retries(self) -> dict[TopicPartition, list[int]]:
        """What failed, and waits for its next try."""
        ours = (share for share in self.shares.values() if share.state is not WorkState.OVER)
        return {share.partition: offsets for share in ours if (offsets := share.pending_retries)}

    async def settled(self, share: PartitionWork) -> None:
        """Wait until nothing of it is being worked on."""
        while self._is_running(share):
            share.bell.clear()
            await share.bell.wait()

    def _is_running(self, share: PartitionWork) -> bool:
        return any(mine is share for mine, _ in self.running.values())

    # --- taking in -------------------------------------------------------------------------------

    def has_room(self, share: PartitionWork) -> bool:
        """Whether a partition may bring more."""
        load = self.load
        return (
            share.state is WorkState.OPEN
            and not self.stopped
            and share.count < load.max_count - load.count
            and share.size < load.max_size - load.size
        )

    async def room(self, share: PartitionWork) -> bool:
        """Wait until a partition may bring more; False if it is not ours any more.

        Not before what was worked on of it, when it was ours before, has come to its end: else a
        key might be worked on twice at the same time.
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
        """Wait until all that was taken in of it is finished; False if it is not ours any more."""
        while share.count and share.state is not WorkState.OVER:  # noqa: ASYNC110 - it is rare
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return share.state is not WorkState.OVER

    def submit(self, share: PartitionWork, records: Sequence[Record], size: int) -> None:
        """Take records in; ask `room` before."""
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
        """Return when there may be something to do, and then wake others if there is more."""
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
        """Let idle workers look at what is ready."""
        if not self.running:
            self.pace.begin(asyncio.get_running_loop().time())
        idle = self._idle
        for _ in range(min(_WOKEN_AT_ONCE, len(self.ready), len(idle))):
            idle.pop().set_result(None)

    async def may_begin(self, share: PartitionWork, item: Item) -> bool:
        """Whether an item may be begun now; if not, it is put aside, or forgotten.

        While it is not certain that a partition is still ours, nothing of it is begun.
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
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)  # rare, and no event tells of an answer

    def again(self, share: PartitionWork, item: Item, seconds: float) -> None:
        """Have an item begun once more, after some time. It keeps its place in the order."""

        def ready() -> None:
            share.timers.discard(timer)
            self.ready.append((share, item))
            self.wake()

        timer = asyncio.get_running_loop().call_later(seconds, ready)
        share.timers.add(timer)

    def finish(self, share: PartitionWork, item: Item) -> None:
        """It was worked on, and need not be again."""
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
        """Some records of a batch need not be worked on again, whatever becomes of the others."""
        if share.state is WorkState.OVER:
            return
        for record in records:
            share.ledger.finish(record.offset)
        _count(share, self.load, -len(records), -sum(map(size_of, records)))

    def stop_running(self, task: asyncio.Task[Any], share: PartitionWork) -> None:
        """A worker is done with its item, whether that is finished or not."""
        del self.running[task]
        self.pace.end(asyncio.get_running_loop().time())
        if share.state is not WorkState.OPEN:
            share.bell.set()
        if self.stopped:
            self._quiet.set()

    # --- the end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin nothing more."""
        self.stopped = True

    async def quiet(self) -> None:
        """Wait until nothing is being worked on."""
        while self.running:
            self._quiet.clear()
            await self._quiet.wait()

    def _ring_soon(self) -> None:
        """Once a turn of the loop, however many were finished in it."""
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
