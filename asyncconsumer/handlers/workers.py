"""Those who do the work: a fixed number of coroutines that take what is ready."""

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
_THE_END: Final = (SystemExit, KeyboardInterrupt, GeneratorExit)  # of more than a record


class Workers:
    """Run `work` as often as items may be worked on at once."""

    def __init__(self, handler: str, lanes: WorkQueue, call: Call, failures: Failures) -> None:
        self.finished = 0
        self._handler = handler
        self._lanes = lanes
        self._call = call
        self._failures = failures

    async def work(self) -> None:
        """Take what is ready, for ever. Handlers that never wait must not starve other tasks."""
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
            except BaseException as error:  # noqa: BLE001 - told apart there; a panic is one, too
                await self._failed(task, share, item, error)
            else:
                # a cancellation that came too late is met by us; what a handler met it answered
                if task not in lanes.cut or await self._take_back(task):
                    lanes.finish(share, item)
                    self.finished += 1
                lanes.stop_running(task, share)

    async def _failed(
        self, task: "asyncio.Task[object]", share: PartitionWork, item: Item, error: BaseException
    ) -> None:
        """Deal with it, unless it was we who cancelled: then the item is somebody else's.

        Whatever a handler makes of that: what it cleans up may fail, and libraries may translate.
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
        """Whether a cancellation that a handler met was meant for us: nothing is begun any more.

        Else it is the handler's own, which some libraries leave behind when a time of theirs is up:
        it is taken back, for the worker would be gone, and nobody would know.
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
        """One of a batch cannot be read: the others are none the worse for it."""
        await self._failures.give_up(bad, error, 1)
        self._lanes.finish_some(share, [bad])
        if len(batch) == 1:
            self._lanes.finish(share, batch)
        else:
            batch[:] = [record for record in batch if record is not bad]
            self._lanes.again(share, batch, 0)

    async def _take_back(self, task: "asyncio.Task[object]") -> bool:
        """The cancellation was for the item's sake; the worker goes on. Whether it was met here.

        A handler that had its own partition taken away, by a seek, may not have met it yet: it must
        not be met by the next record. One that did and returned all the same may have done nothing.
        """
        self._lanes.cut.discard(task)
        met_here = False
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:  # if there was another, `cancelling` says so
            met_here = True
        task.uncancel()
        return met_here


def _bad_one(batch: list[Record], error: BaseException) -> Record | None:
    """The record of a batch that cannot be deserialized, if that is what is wrong, for good."""
    if not isinstance(error, DeserializationFailed) or error.retriable:
        return None
    return next((record for record in batch if record is error.record), None)
