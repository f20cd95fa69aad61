"""The worker coroutines of a handler, which take ready items from its work queue."""

import asyncio
import logging
from typing import Final, NoReturn

from asyncconsumer.errors import DeserializationFailed, HandlerCancelled
from asyncconsumer.handlers.failures import Failures, kind_of
from asyncconsumer.handlers.invoke import Call
from asyncconsumer.handlers.partition_work import Item, PartitionWork, WorkState
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.records.decoding import Record

_log: Final = logging.getLogger(__name__)
_ITEMS_BETWEEN_BREATHS: Final = 64
_THE_END: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)  # these end more than one record


class Workers:
    """The workers of one handler. The caller runs `work` in `concurrency` tasks."""

    def __init__(self, handler: str, lanes: WorkQueue, call: Call, failures: Failures) -> None:
        self.finished = 0
        self._handler = handler
        self._lanes = lanes
        self._call = call
        self._failures = failures

    async def work(self) -> None:
        """Process ready items until cancelled.

        Yield to the event loop after 64 items, so that handlers that never wait do not starve it.
        """
        lanes = self._lanes
        ready, running, call = lanes.ready, lanes.running, self._call
        task = asyncio.current_task()
        assert task is not None
        in_a_row = 0
        while not task.cancelling() or not self._is_to_end(task):
            if not ready or lanes.stopped:
                await lanes.wait_for_work()
                in_a_row = 0
            elif in_a_row >= _ITEMS_BETWEEN_BREATHS:
                await asyncio.sleep(0)
                in_a_row = 0
            if not ready or lanes.stopped:
                continue
            job = ready.popleft()
            share, item = job
            if (share.state is not WorkState.OPEN or share.deadline_passed) and (
                not await lanes.may_begin(share, item)
            ):
                continue
            in_a_row += 1
            running[task] = job
            try:
                await call(item)
            except _THE_END:
                raise
            except BaseException as error:  # noqa: BLE001 - `_failed` sorts them; a Rust panic is one
                await self._failed(task, share, item, error)
            else:
                # The item counts unless the handler swallowed a cancellation and returned.
                if task not in lanes.cut or await self._take_back(task):
                    lanes.finish(share, item)
                    self.finished += 1
                lanes.stop_running(task, share)

    async def _failed(
        self, task: "asyncio.Task[object]", share: PartitionWork, item: Item, error: BaseException
    ) -> None:
        """Apply the failure policy, unless this framework cancelled the call.

        A cancelled handler may raise any exception: its cleanup may fail, or a library may convert
        the cancellation. The item is then dropped, because its partition was revoked or the app
        ends.
        """
        lanes = self._lanes
        try:
            if isinstance(error, asyncio.CancelledError):
                if task.cancelling():
                    raise error
                error = HandlerCancelled(self._handler)
            elif task in lanes.cut or self._is_to_end(task):
                self._be_cancelled(error)
            if isinstance(item, list) and (bad := _bad_one(item, error)) is not None:
                await self._go_on_without(bad, share, item, error)
            elif await self._failures.deal_with(share, item, error):
                lanes.finish(share, item)
        except asyncio.CancelledError:
            if task not in lanes.cut or task.cancelling() > 1:
                raise
        finally:
            if task in lanes.cut:
                await self._take_back(task)
            lanes.stop_running(task, share)

    def _is_to_end(self, task: "asyncio.Task[object]") -> bool:
        """Return whether a cancellation is meant for the worker, because the queue is stopped.

        Otherwise the cancellation comes from the handler, as some libraries leave one after a
        timeout. It is undone, because the worker would end unnoticed.
        """
        if not self._lanes.stopped:
            while task.cancelling():
                task.uncancel()
        return task.cancelling() > 0

    def _be_cancelled(self, error: BaseException) -> NoReturn:
        _log.warning("handler %s was cancelled, and raised %s", self._handler, kind_of(error))
        raise asyncio.CancelledError from error

    async def _go_on_without(
        self, bad: Record, share: PartitionWork, batch: list[Record], error: BaseException
    ) -> None:
        """Give up a record that cannot be deserialized and retry the rest of its batch."""
        await self._failures.give_up(bad, error, 1)
        self._lanes.finish_some(share, [bad])
        if len(batch) == 1:
            self._lanes.finish(share, batch)
        else:
            batch[:] = [record for record in batch if record is not bad]
            self._lanes.again(share, batch, 0)

    async def _take_back(self, task: "asyncio.Task[object]") -> bool:
        """Undo a cancellation of the item. Return whether it had not reached the handler.

        A handler that seeks its own partition cancels itself, and may return before the
        `CancelledError` is raised. The error must not be raised in the call for the next record. A
        handler that did get the error and returned may not have processed its record.
        """
        self._lanes.cut.discard(task)
        met_here = False
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:  # a second one still shows in `cancelling`
            met_here = True
        task.uncancel()
        return met_here


def _bad_one(batch: list[Record], error: BaseException) -> Record | None:
    """Return the record that cannot be deserialized, if that is why the batch failed for good."""
    if not isinstance(error, DeserializationFailed) or error.retriable:
        return None
    return next((record for record in batch if record is error.record), None)
