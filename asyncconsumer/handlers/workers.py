"""The workers of a handler, which are coroutines that take items from its work queue."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Any, Final, NoReturn

from asyncconsumer.aio.suspensions import boot_clock
from asyncconsumer.aio.wait import POLL_SECONDS
from asyncconsumer.errors import DeserializationFailed, HandlerCancelled
from asyncconsumer.handlers.acknowledgements import Acknowledgements, Sent
from asyncconsumer.handlers.failures import Failures, kind_of
from asyncconsumer.handlers.invoke import CallHandler
from asyncconsumer.handlers.partition_work import (
    Item,
    PartitionWork,
    WorkerState,
    WorkState,
    current_worker,
)
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.records.decoding import BlockRun, Record

StartTask = Callable[[Coroutine[Any, Any, None], str], object]
"""A function that runs a coroutine in the background until it returns or the app is closed."""

_log: Final = logging.getLogger(__name__)
_ITEMS_PER_TURN: Final = 64
_RECORDS_PER_TURN: Final = 256
_SECONDS_PER_TURN: Final = 0.005
_OTHER_CLOCK: Final = 1.0  # seconds by which a simulated clock differs from the real one
_SINGLE_CALLS: Final = 32  # calls without runs after a call that waited
_THE_END: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)  # not failures of a record


class Workers:
    """The workers of one handler."""

    def __init__(
        self,
        handler: str,
        queue: WorkQueue,
        call: CallHandler,
        failures: Failures,
        recorder: Recorder,
        *,
        publishes: bool = False,
    ) -> None:
        self._handler = handler
        self._queue = queue
        self._call = call
        self._failures = failures
        self._durations = recorder.histogram("handler_duration_seconds", handler)
        self._acknowledgements = Acknowledgements(queue, self._deal_with_undelivered)
        self._permit = _StartPermit()
        self._start: StartTask
        self._latest: WorkerState | None = None  # the state of the worker that made the last call
        self._logs_results = not publishes  # until the first result without a topic
        self._single_calls = 0  # calls that must end without a wait before the next run

    def start(self, start: StartTask, count: int) -> None:
        """Start `count` workers, which run until they are cancelled."""
        self._start = start
        for number in range(count):
            start(self.work(), f"{self._handler}-{number}")

    async def work(self) -> None:
        """Process items and records of the queue until cancelled.

        Yield to the event loop in between, so that handlers that never wait do not starve it.
        """
        queue, state, clock = self._queue, WorkerState(), _clock()
        current_worker.set(state)
        ready, startable = queue.ready, queue.startable
        task = asyncio.current_task()
        assert task is not None
        in_a_row = 0
        while not task.cancelling() or not self._is_to_end(task):
            if queue.stopped or not (ready or startable):
                await queue.wait_for_work()
                in_a_row = 0
            elif in_a_row >= _ITEMS_PER_TURN:
                await asyncio.sleep(0)
                in_a_row = 0
            elif ready:
                in_a_row += await self._process_ready(task, state, clock)
            elif self._single_calls:
                queue.start_some()
            elif (work := queue.next_partition()) is None:
                continue
            elif work.deadline_passed:
                await asyncio.sleep(POLL_SECONDS)  # rare; no event signals a new deadline
            else:
                in_a_row = await self._run(task, state, work)

    async def _process_ready(
        self, task: "asyncio.Task[object]", state: WorkerState, clock: Callable[[], float]
    ) -> int:
        """Process ready items, at most `_ITEMS_PER_TURN`. Return the number of items taken."""
        queue = self._queue
        ready, running, call, permit = queue.ready, queue.running, self._call, self._permit
        for count in range(_ITEMS_PER_TURN):
            if not ready or queue.stopped or task.cancelling():
                return count
            work, item = ready.popleft()
            began = clock()
            if work.state is not WorkState.OPEN or not permit.allows(work, began):
                if not await queue.may_begin(work, item):
                    continue
                began = clock()
            state.work, state.item = work, item
            running[task] = self._latest = state
            try:
                if (result := await call(item)) is not None:
                    self._take_result(state, result)
            except _THE_END:
                raise
            except BaseException as error:  # noqa: BLE001 - `_failed` sorts them; a Rust panic is one
                self._durations.observe(clock() - began)
                await self._failed(task, work, item, error)
                continue
            # False if the call waited, and another worker made a call meanwhile
            at_once = self._latest is state
            self._single_calls = max(self._single_calls - 1, 0) if at_once else _SINGLE_CALLS
            # The item counts unless the handler swallowed a cancellation and returned.
            is_whole = task not in queue.cut or await self._take_back(task)
            ended = clock()
            self._durations.observe(ended - began)
            self._end_call(task, state, item, ended, is_whole=is_whole)
        return _ITEMS_PER_TURN

    async def _run(
        self, task: "asyncio.Task[object]", state: WorkerState, work: PartitionWork
    ) -> int:
        """Process unstarted records of the partition `work` one after the other, with a `BlockRun`.

        Return a number to add to the count after which the worker yields to the event loop. It is
        `_ITEMS_PER_TURN` after a complete run, so that the worker yields at once. It is 0 if a call
        had to wait or failed, because other tasks have run meanwhile.
        """
        queue = self._queue
        queue.begin_run(task, state, work)
        self._latest = state
        follows_each = queue.order.follows_each(work)
        run = BlockRun(
            work.ledger.unstarted[0],
            partial(self._call_apart, queue) if follows_each else self._call,
            _RECORDS_PER_TURN,
            min(work.deadline - asyncio.get_running_loop().time(), _SECONDS_PER_TURN),
            busy=work.busy,
            postpone=partial(queue.postpone_next, work),
            on_result=partial(self._take_result, state),
            cancelling=task.cancelling,
            clock=_run_clock(),
        )
        try:
            await run
        except _THE_END:
            raise
        except BaseException as error:
            self._observe_run(run)
            if run.record is None:
                raise
            queue.interrupt_run()  # ends this run, or another one that waits
            await self._failed(task, work, run.record, error)
            return 0
        self._observe_run(run)
        if run.taken:
            assert run.record is not None
            await self._end_interrupted(task, state, work, run.record)
            return 0
        queue.end_run(task, work)
        return _ITEMS_PER_TURN

    def _call_apart(self, queue: WorkQueue, record: Record) -> Awaitable[Any]:
        """End the run after its current record, `record`, and call the handler with it.

        The record becomes an item of the queue.
        """
        queue.interrupt_run()
        return self._call(record)

    def _observe_run(self, run: BlockRun) -> None:
        """Record the durations of the handler calls that a `BlockRun` made.

        Only the last call is measured alone. The mean of the others is recorded for each of them.
        All of these are in the histogram's first bucket, because the time of a run is limited.
        """
        if run.calls > 1:
            self._durations.observe(run.seconds_before_last / (run.calls - 1), run.calls - 1)
        if run.calls:
            self._durations.observe(run.seconds_of_last)

    async def _end_interrupted(
        self, task: "asyncio.Task[object]", state: WorkerState, work: PartitionWork, record: Record
    ) -> None:
        """Finish the last handler call of a `BlockRun` that ended early. The call has returned.

        Such a run has ended because its current record became an item of the queue, for example
        while the handler waited.
        """
        queue = self._queue
        if state.waited:
            self._single_calls = _SINGLE_CALLS
        is_whole = task not in queue.cut or await self._take_back(task)
        now = asyncio.get_running_loop().time()
        self._end_call(task, state, record, now, is_whole=is_whole)

    def _take_result(self, state: WorkerState, result: object) -> bool:
        """Handle the return value of a handler call.

        If the handler published results, its record is in flight until they are acknowledged.
        Return True if a `BlockRun` made the call and continues with the next record meanwhile.
        Otherwise return False.
        """
        if type(result) is not Sent:
            self._log_unpublished(result)
            return False
        record = self._queue.start_in_run(state)
        if record is None:
            state.sent = result
            return False
        assert state.work is not None
        self._acknowledgements.wait_for(state.work, record, result)
        return True

    def _end_call(
        self,
        task: "asyncio.Task[object]",
        state: WorkerState,
        item: Item,
        now: float,
        *,
        is_whole: bool,
    ) -> None:
        """Mark the item of a call as processed, now or when its results are acknowledged.

        Drop the item if the handler was cancelled (not `is_whole`), because the handler may not
        have processed all of it.
        """
        queue, work, sent = self._queue, state.work, state.sent
        assert work is not None
        state.sent = None
        if sent is not None and is_whole and work.state is not WorkState.OVER:
            self._acknowledgements.wait_for(work, item, sent)
        else:
            if is_whole:
                queue.finish(work, item)
                queue.finished += 1
            queue.completions.end(now)
        queue.stop_running(task, work)

    def _deal_with_undelivered(self, sent: Sent) -> None:
        """Apply the failure policy to an item of which a result could not be written."""
        self._start(self._undelivered(sent), f"{self._handler}-undelivered")

    async def _undelivered(self, sent: Sent) -> None:
        work, item = sent.work, sent.item
        if sent not in work.unacknowledged:
            return  # cancelled meanwhile
        del work.unacknowledged[sent]
        task = asyncio.current_task()
        assert task is not None
        state = self._queue.running[task] = WorkerState()
        state.work, state.item = work, item
        try:
            await sent.wait()
        except BaseException as error:  # noqa: BLE001 - as that of a call
            await self._failed(task, work, item, error)

    async def _failed(
        self, task: "asyncio.Task[object]", work: PartitionWork, item: Item, error: BaseException
    ) -> None:
        """Apply the failure policy to a failed call, unless this package cancelled the call.

        A cancelled handler may raise any exception: its cleanup may fail, or a library may convert
        the cancellation. The item is then dropped, because its partition was revoked or the app
        ends.
        """
        queue = self._queue
        try:
            if isinstance(error, asyncio.CancelledError):
                if task.cancelling():
                    raise error
                error = HandlerCancelled(self._handler)
            elif task in queue.cut or self._is_to_end(task):
                self._be_cancelled(error)
            if isinstance(item, list) and (bad := _bad_one(item, error)) is not None:
                await self._go_on_without(bad, work, item, error)
            elif await self._failures.deal_with(work, item, error):
                queue.finish(work, item)
        except asyncio.CancelledError:
            if task not in queue.cut or task.cancelling() > 1:
                raise
        finally:
            if task in queue.cut:
                await self._take_back(task)
            queue.completions.end(asyncio.get_running_loop().time())
            queue.stop_running(task, work)

    def _log_unpublished(self, result: object) -> None:
        """Log once that a handler returned a result although `publish` names no topic."""
        if self._logs_results:
            self._logs_results = False
            _log.error(
                "handler %s returned %s, which is dropped: set `publish` to the topic of its "
                "results, or return None",
                self._handler,
                type(result).__name__,
            )

    def _is_to_end(self, task: "asyncio.Task[object]") -> bool:
        """Return whether this worker was cancelled because its queue is stopped.

        If the queue is not stopped, the cancellation comes from the handler, because some libraries
        leave one after a timeout. Then undo it, so that the worker continues.
        """
        if not self._queue.stopped:
            while task.cancelling():
                task.uncancel()
        return task.cancelling() > 0

    def _be_cancelled(self, error: BaseException) -> NoReturn:
        _log.warning(
            "handler %s was cancelled and raised %s; its item is dropped",
            self._handler,
            kind_of(error),
        )
        raise asyncio.CancelledError from error

    async def _go_on_without(
        self, bad: Record, work: PartitionWork, batch: list[Record], error: BaseException
    ) -> None:
        """Give up the record `bad`, which cannot be deserialized, and retry the other records."""
        await self._failures.give_up(bad, error, 1)
        self._queue.finish_some(work, [bad])
        if len(batch) == 1:
            self._queue.finish(work, batch)
        else:
            batch[:] = [record for record in batch if record is not bad]
            self._queue.retry(work, batch, 0)

    async def _take_back(self, task: "asyncio.Task[object]") -> bool:
        """Undo the cancellation of a handler call that has ended.

        Return True if the handler did not get the `CancelledError`. Otherwise it may have returned
        without processing its record. The error must not be raised in the next call. A handler that
        seeks its own partition cancels itself, for example, and may return before the error is
        raised.
        """
        self._queue.cut.discard(task)
        met_here = False
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:  # a second cancellation still shows in `cancelling`
            met_here = True
        task.uncancel()
        return met_here


class _StartPermit:
    """A cached permission to call the handler with records of a partition until its deadline.

    Reading the deadline takes longer than the other work for a record. The permission is therefore
    kept until the next iteration of the event loop, but at most for `_SECONDS_PER_TURN`. That time
    is measured by the clock of `_run_clock`.
    """

    __slots__ = ("_clock", "_until", "_work")

    def __init__(self) -> None:
        self._work: PartitionWork | None = None
        self._until = 0.0
        self._clock: Callable[[], float] | None = None

    def allows(self, work: PartitionWork, now: float) -> bool:
        """Return whether a handler call for a partition may start at the loop time `now`."""
        if self._clock is None:
            self._clock = _run_clock() or boot_clock
        if work is self._work and self._clock() < self._until:
            return True
        seconds = work.deadline - now
        if seconds <= 0:
            return False
        if self._work is None:
            asyncio.get_running_loop().call_soon(self._end)
        self._work, self._until = work, self._clock() + min(seconds, _SECONDS_PER_TURN)
        return True

    def _end(self) -> None:
        self._work = None


def _clock() -> Callable[[], float]:
    """Return the fastest function that returns the loop's time.

    If the loop uses `monotonic`, that function is returned, because calling it directly is faster.
    """
    loop = asyncio.get_running_loop()
    return monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time


def _run_clock() -> Callable[[], float] | None:
    """Return the clock that limits the time of a `BlockRun`, or None for the default clock.

    If the loop's clock is simulated, return that. The default clock includes the time for which the
    machine is suspended. Unlike uvloop's clock, it advances while the event loop is blocked.
    """
    loop = asyncio.get_running_loop()
    return loop.time if abs(loop.time() - monotonic()) > _OTHER_CLOCK else None  # of a simulation


def _bad_one(batch: list[Record], error: BaseException) -> Record | None:
    """Return the record of the batch that cannot be deserialized.

    Return None if the batch failed for another reason, or if a retry may succeed.
    """
    if not isinstance(error, DeserializationFailed) or error.retriable:
        return None
    return next((record for record in batch if record is error.record), None)
