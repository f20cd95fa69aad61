"""The bounded work queue of one handler, from which its workers take records.

Most records are started without an entry in the queue. A worker processes such records of one
partition one after the other, which is called a run. Other records become items of the queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any, Final

from asyncconsumer.aio.wait import POLL_SECONDS, wait_until
from asyncconsumer.handlers.completion_timer import CompletionTimer
from asyncconsumer.handlers.ordering import Ordering
from asyncconsumer.handlers.partition_work import (
    Item,
    PartitionWork,
    WorkerState,
    WorkState,
    first_of,
    records_of,
)
from asyncconsumer.handlers.priorities import Levels, Load, PrioritizedItems
from asyncconsumer.handlers.room_waiters import RoomWaiters
from asyncconsumer.records.decoding import Record, RecordBlock
from asyncconsumer.streams.stream import Fence
from asyncconsumer.types import TopicPartition

_WOKEN_AT_ONCE: Final = 2  # workers; each of them wakes two more while items are ready
_STARTED_AT_ONCE: Final = 16  # records that `start_some` makes items
_MUCH_IN_FLIGHT: Final = 128  # records of one partition


class WorkQueue:
    """The records that one handler has to process. All changes are synchronous.

    Records and batches that were started, or are ready to start, are called items.

    A worker processes the unstarted records of a partition one after the other, which is called a
    run. If the handler waits, its record becomes an item, and another worker continues with the
    next record. At most one worker is in a run, because a run that waits is interrupted before
    another one begins.

    A partition may add records only while it has fewer in flight than the limits leave free. One
    stuck partition therefore holds at most half.

    Records of a higher priority are started first, but one start in ten is for lower ones. The
    limits apply to each priority separately.
    """

    def __init__(
        self,
        max_count: int,
        max_size: int,
        order: Callable[[Callable[[], None]], Ordering],
        priorities: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.finished = 0  # items processed without a failure
        self.startable: Final[dict[PartitionWork, None]] = {}  # with records to start, in turn
        self._levels = levels = Levels(max_count, max_size, priorities)
        self.ready: Final[deque[tuple[PartitionWork, Item]] | PrioritizedItems] = (
            PrioritizedItems(levels, self.startable, self.start_some) if priorities else deque()
        )  # items that no worker has taken yet
        self.running: Final[dict[asyncio.Task[Any], WorkerState]] = {}
        self.cut: Final[set[asyncio.Task[Any]]] = set()  # tasks whose call `cancel` has cancelled
        self.partitions: Final[dict[TopicPartition, PartitionWork]] = {}
        self.stopped = False  # no more items are started
        self.completions: Final = CompletionTimer()
        self.order: Final = order(self.wake)  # it may make items ready later, by a timer
        self._run: WorkerState | None = None  # the worker that is in a run
        self._run_checked = False  # `_check_run` is scheduled
        self._idle: list[asyncio.Future[None]] = []
        self._room_waiters = RoomWaiters(self._has_much_room)
        self._item_ended = asyncio.Event()  # set when an item ends after `stop`

    # --- partitions ------------------------------------------------------------------------------

    def open(self, partition: TopicPartition, start: int, fence: Fence | None) -> PartitionWork:
        """Register an assigned partition that is read from offset `start` on.

        `fence` has the deadline until which the partition is certainly owned.
        """
        former = self.partitions.get(partition)
        while former is not None and not self.is_running(former):
            former = former.former
        work = self.partitions[partition] = PartitionWork(
            partition, start, fence, self._levels.of(partition.topic), former
        )
        return work

    def hold(self, work: PartitionWork) -> None:
        """Start no more handler calls for records of a partition, until `release`."""
        self._interrupt_run_of(work)
        work.hold()
        self._update_startable(work)

    def release(self, work: PartitionWork) -> None:
        """Allow handler calls for records of a held partition again."""
        for item in work.release():
            self.ready.append((work, item))
        self._update_startable(work)
        self.wake()

    def end(self, work: PartitionWork) -> None:
        """Drop the waiting records of a partition, and cancel its running handler calls."""
        self._interrupt_run_of(work)
        self._count(work, -work.count, -work.size)
        work.end()
        self._update_startable(work)
        self.cancel(work)
        self._room_waiters.discard(work)
        self._room_waiters.notify_soon()

    def cancel(self, work: PartitionWork | None = None) -> dict[TopicPartition, list[int]]:
        """Cancel the running handler calls for a partition, or for all partitions.

        Return the offsets of their records. Results that were sent already may still be written,
        but the records count as unprocessed.
        """
        self._interrupt_run_of(work)
        cancelled: dict[TopicPartition, list[int]] = {}
        for each in self.partitions.values() if work is None else (work,):
            if sent := list(each.unacknowledged):
                each.unacknowledged.clear()
                items = [records_of(results.item) for results in sent]
                cancelled[each.partition] = [record.offset for item in items for record in item]
                self.note_end(each)
        for task, state in self.running.items():
            if work in (None, state.work) and task not in self.cut:
                self.cut.add(task)
                task.cancel()
                assert state.work is not None
                assert state.item is not None
                offsets = cancelled.setdefault(state.work.partition, [])
                offsets.extend(record.offset for record in records_of(state.item))
        return cancelled

    def pending_retries(self) -> dict[TopicPartition, list[int]]:
        """Return the offsets of records that failed and wait for their next attempt."""
        assigned = (work for work in self.partitions.values() if work.state is not WorkState.OVER)
        return {work.partition: offsets for work in assigned if (offsets := work.pending_retries)}

    async def wait_idle(self, work: PartitionWork) -> None:
        """Wait until no handler call for a partition is running or awaits acknowledgements."""
        while self.is_running(work):
            work.wakeup.clear()
            await work.wakeup.wait()

    def is_running(self, work: PartitionWork) -> bool:
        """Return whether handler calls for a partition are running or await acknowledgements."""
        runs = any(state.work is work for state in self.running.values())
        return runs or bool(work.unacknowledged)

    @property
    def is_idle(self) -> bool:
        """Whether no handler call is running, and none awaits an acknowledgement."""
        return not (self.running or any(work.unacknowledged for work in self.partitions.values()))

    # --- adding records --------------------------------------------------------------------------

    def has_room(self, work: PartitionWork) -> bool:
        """Return whether more records of a partition may be submitted."""
        level = work.level
        return (
            work.state is WorkState.OPEN
            and not self.stopped
            and not self._levels.is_blocked
            and work.count < level.max_count - level.count
            and work.size < level.max_size - level.size
        )

    def _has_much_room(self, work: PartitionWork) -> bool:
        """Return whether a partition that had to wait for room has enough room to continue.

        Without a minimum, a block would be added for each processed record, which is slow.
        """
        count, _ = self.room(work)
        return self.has_room(work) and 4 * count >= min(work.count, _MUCH_IN_FLIGHT)

    def room(self, work: PartitionWork) -> tuple[int, int]:
        """Return how many more records and bytes of a partition may be submitted, if it has room.

        When these are added, it has at most as much in flight as the limits leave free.
        """
        level = work.level
        return (
            (level.max_count - level.count - work.count + 1) // 2,
            (level.max_size - level.size - work.size + 1) // 2,
        )

    @property
    def load(self) -> Load:
        """The number and bytes of the records in flight."""
        return self._levels.load

    def block(self) -> None:
        """Accept no more records until `unblock`."""
        self._levels.is_blocked = True

    def unblock(self) -> None:
        """Accept records again."""
        if self._levels.is_blocked:
            self._levels.is_blocked = False
            self._room_waiters.notify_soon()

    async def wait_for_room(self, work: PartitionWork) -> bool:
        """Wait until more records of a partition may be submitted. Return True.

        Return False if the partition is no longer assigned. If an earlier assignment of the
        partition still has running handler calls, wait for these, too. Otherwise two records of a
        key might be processed concurrently.
        """
        if work.former is not None:
            await self.wait_idle(work.former)
            work.forget_former()
        while work.state is not WorkState.OVER:
            if self.has_room(work):
                return True
            self._room_waiters.add(work)
            work.wakeup.clear()
            await work.wakeup.wait()
            self._room_waiters.discard(work)
        return False

    async def wait_empty(self, work: PartitionWork) -> bool:
        """Wait until all submitted records of a partition are processed. Return True.

        Return False if the partition is no longer assigned.
        """
        await wait_until(lambda: not work.count or work.state is WorkState.OVER)
        return work.state is not WorkState.OVER

    def submit(self, work: PartitionWork, block: RecordBlock) -> None:
        """Add records of a partition, except those that its last owner has processed.

        The limits are not checked here, so call `wait_for_room` before.
        """
        ledger = work.ledger
        if ledger.knows_finished:
            added, block = block, RecordBlock()
            is_new = (record for record in added.records if not ledger.is_finished(record.offset))
            block.fill(is_new, len(added.records), inf)
        count = len(block.records)
        if not count:
            return
        self._count(work, count, block.size_between(0, count))
        ledger.add(block)
        self.order.add(work, block.records, self.ready.append)
        self._update_startable(work)
        self.wake(_WOKEN_AT_ONCE if self.ready else 1)

    def _count(self, work: PartitionWork, count: int, size: int) -> None:
        level = work.level
        work.count += count
        work.size += size
        level.count += count
        level.size += size

    def _update_startable(self, work: PartitionWork) -> None:
        """Add a partition to `startable` if its next record may be started. Otherwise remove it."""
        if work.ledger.unstarted and work.state is WorkState.OPEN and self.order.may_start(work):
            self.startable.setdefault(work)
        else:
            self.startable.pop(work, None)

    # --- for workers -----------------------------------------------------------------------------

    async def wait_for_work(self) -> None:
        """Wait until a record or batch can be started. If several are ready, wake more workers."""
        while self.stopped or not (self.ready or self.startable):
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

    def wake(self, limit: int = _WOKEN_AT_ONCE) -> None:
        """Wake up to `limit` idle workers, and not more than are needed for the ready records."""
        if self.is_idle:
            self.completions.begin(asyncio.get_running_loop().time())
        idle = self._idle
        count = limit if self.startable else min(limit, len(self.ready))
        for _ in range(min(count, len(idle))):
            idle.pop().set_result(None)

    def next_partition(self, priority: int | None = None) -> PartitionWork | None:
        """Return a partition whose unstarted records a worker may process now, or None.

        The partition has this priority. If `priority` is None, one is chosen. If another worker is
        in a run (see `WorkQueue`), its handler is waiting, so its run is interrupted.
        """
        self._interrupt_waiting_run()
        startable = self.startable
        if (work := self._levels.next_of(startable, priority)) is not None:
            del startable[work]
            startable[work] = None  # the other partitions come next
        return work

    def begin_run(self, task: asyncio.Task[Any], state: WorkerState, work: PartitionWork) -> None:
        """Begin a run: the worker processes the unstarted records of a partition in order.

        `task` and `state` are those of the worker. `work` has the records of the partition.
        """
        state.work, state.item, state.waited = work, None, False
        self.running[task] = self._run = state
        if not self._run_checked:
            self._run_checked = True
            asyncio.get_running_loop().call_soon(self._check_run)

    def _check_run(self) -> None:
        """Interrupt the current run (see `WorkQueue`), because its handler waits.

        `begin_run` schedules this call. The event loop makes it before the end of the run only if
        the handler waits.
        """
        self._run_checked = False
        self._interrupt_waiting_run()

    def _interrupt_waiting_run(self) -> None:
        if (state := self._run) is not None:
            state.waited = True
            self.interrupt_run()

    def start_in_run(self, state: WorkerState) -> Record | None:
        """Make the current record of this worker's run an item, and let the run continue.

        Return the record, which is in flight until `finish`. Return None if the run (see
        `WorkQueue`) ends after this record.
        """
        if self._run is not state:
            return None
        if self.order.is_serial:
            self.interrupt_run()
            return None
        work = state.work
        assert work is not None
        block = work.ledger.unstarted[0]
        if block.counted != block.index:
            self.count_finished()
        record = work.ledger.start_next(in_run=True)
        self.order.start(work, record)
        return record

    def interrupt_run(self) -> None:
        """Make the current record of the run an item, so that other workers can take the next ones.

        The run (see `WorkQueue`) ends after this record. If no worker is in a run, do nothing.
        """
        if (state := self._run) is not None:
            work = state.work
            assert work is not None
            self.count_finished()
            self._run = None
            state.item = record = work.ledger.start_next()
            self.order.start(work, record)
            self._update_startable(work)
            self.wake()

    def _interrupt_run_of(self, work: PartitionWork | None) -> None:
        if self._run is not None and work in (None, self._run.work):
            self.interrupt_run()

    def start_some(self, priority: int | None = None) -> None:
        """Make items of the next unstarted records of a partition.

        Workers call this instead of starting a run (see `WorkQueue`) if their handler mostly waits,
        because each run would be interrupted at its first record.
        """
        if (work := self.next_partition(priority)) is None:
            return
        ledger, order, busy, ready = work.ledger, self.order, work.busy, self.ready
        unstarted = ledger.unstarted
        for _ in range(_STARTED_AT_ONCE):
            record = ledger.start_next()
            if record.key in busy:
                order.postpone(work, record)
            else:
                order.start(work, record)
                ready.append((work, record))
            if not (unstarted and order.may_start(work)):
                del self.startable[work]
                break
        if len(ready) > 1:
            self.wake()

    def postpone_next(self, work: PartitionWork) -> None:
        """Keep the next record of a run until the earlier record with the same key is processed."""
        self.count_finished()
        self.order.postpone(work, work.ledger.start_next(in_run=True))

    def end_run(self, task: asyncio.Task[Any], work: PartitionWork) -> None:
        """End a run (see `WorkQueue`), because its records were all processed or postponed."""
        self.count_finished()
        self._run = None
        work.ledger.drop_empty_block()
        self._update_startable(work)
        self.stop_running(task, work)

    def count_finished(self) -> None:
        """Count the records that the current run has processed since the last call."""
        if self._run is None or (work := self._run.work) is None:
            return
        block = work.ledger.unstarted[0]
        start, stop = block.counted, block.index
        if count := stop - start:
            block.counted = stop
            self.finished += count
            self.completions.end(asyncio.get_running_loop().time(), count)
            self._count(work, -count, -block.size_between(start, stop))
            self._room_waiters.notify_soon()

    async def may_begin(self, work: PartitionWork, item: Item) -> bool:
        """Return whether a handler may be called with `item`. Wait while the deadline has passed.

        After the deadline another member may own the partition, unless the deadline is extended. If
        the result is False, the item was kept on hold, put back into the queue, or dropped.
        """
        while True:
            if work.state is WorkState.HELD:
                work.parked.append(item)
            elif self.stopped:
                self.ready.appendleft((work, item))
                return False
            if work.state is not WorkState.OPEN:
                return False
            if not work.deadline_passed:
                return True
            await asyncio.sleep(POLL_SECONDS)  # rare; no event signals a new deadline

    def retry(self, work: PartitionWork, item: Item, seconds: float) -> None:
        """Make an item ready again after `seconds`. Records that wait for the item still wait."""

        def ready() -> None:
            work.timers.discard(timer)
            self.ready.append((work, item))
            self.wake()

        timer = asyncio.get_running_loop().call_later(seconds, ready)
        work.timers.add(timer)

    def finish(self, work: PartitionWork, *items: Item) -> None:
        """Mark the records of items as processed. Make the items ready that waited for them."""
        if work.state is WorkState.OVER:
            return
        ledger, done, ready = work.ledger, self.order.done, self.ready.append
        count = size = 0
        for item in items:
            if isinstance(item, list):
                self.finish_some(work, [each for each in item if ledger.is_unfinished(each.offset)])
            else:
                count += 1
                size += ledger.finish(item.offset)
            if work.attempts:
                work.attempts.pop(first_of(item).offset, None)
            done(work, item, ready)
        self._count(work, -count, -size)
        if ledger.unstarted and work not in self.startable:
            self._update_startable(work)
        if self._room_waiters:
            self._room_waiters.notify_soon()

    def finish_some(self, work: PartitionWork, records: Sequence[Record]) -> None:
        """Mark some records of a batch as processed, independently of the others."""
        if work.state is WorkState.OVER:
            return
        size = sum(work.ledger.finish(record.offset) for record in records)
        self._count(work, -len(records), -size)

    def stop_running(self, task: asyncio.Task[Any], work: PartitionWork) -> None:
        """Note that a worker has finished its item or its run."""
        del self.running[task]
        self.note_end(work)

    def note_end(self, work: PartitionWork) -> None:
        """Wake the tasks that wait until nothing is running, because a handler call has ended."""
        if work.state is not WorkState.OPEN:
            work.wakeup.set()
        if self.stopped:
            self._item_ended.set()

    # --- stopping --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Start no more handler calls."""
        self.stopped = True
        self.interrupt_run()

    async def wait_all_idle(self) -> None:
        """Wait until no handler call is running or awaits acknowledgements."""
        while not self.is_idle:
            self._item_ended.clear()
            await self._item_ended.wait()
