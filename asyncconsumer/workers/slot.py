"""A slot for one worker, which is restarted after it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

from asyncconsumer.web.status import Status
from asyncconsumer.workers.process import Say, WorkerProcess
from asyncconsumer.workers.restarts import Restarts

# Seconds without a report, which mean that the event loop is blocked or the process is frozen.
_SILENT: Final = 10
_FROZEN: Final = 60  # other members own its partitions by then, and it is killed
_SECONDS_BETWEEN_LOOKS: Final = 0.05

Start = Callable[[int], Awaitable[WorkerProcess]]


class Slot:
    """A slot that has one worker at a time, or waits to start the next one."""

    def __init__(self, number: int, start: Start, say: Say, randomness: Random) -> None:
        self.number: Final = number
        self.worker: WorkerProcess | None = None
        self._start = start
        self._say = say
        self._restarts = Restarts(randomness)
        self._trouble = "it has not said anything yet"
        self._group: str | None = None  # last reported group id, also after the worker has ended

    async def keep(self) -> None:
        """Start a worker whenever the slot has none, and watch it."""
        while True:
            here = self.worker
            if here is None:
                await self._have_one_started()
            elif not here.ended.is_set():
                await self._wait_a_second(here)
            else:
                await asyncio.sleep(self._wait_after(here))
                if self.worker is here:  # not replaced by a reload
                    self.worker = None

    async def _have_one_started(self) -> None:
        try:
            made = await self._start(self.number)
        except OSError as error:  # such as too many processes or no memory
            wait, self._trouble = self._restarts.after(0), f"it cannot be started: {error}"
            self._say(f"worker {self.number}: {self._trouble}; next try in {wait:.1f} s")
            await asyncio.sleep(wait)
            return
        if self.worker is None:
            self.worker = made
        else:  # a reload was faster
            made.drain()

    async def _wait_a_second(self, worker: WorkerProcess) -> None:
        """Wait up to a second for the end of a worker, and count seconds without a report.

        The count does not advance while the supervisor itself is suspended, unlike a clock.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await worker.ended.wait()
            return
        if worker.status is not None:  # before the first report, imports may take long
            worker.silent += 1
        if worker.silent >= _FROZEN:
            worker.kill(f"no word for {worker.silent} s, it was killed")

    def _wait_after(self, worker: WorkerProcess) -> float:
        wait = self._restarts.after(asyncio.get_running_loop().time() - worker.started)
        times = self._restarts.in_a_row
        has = "has ended" if times == 1 else f"has ended {times} times in a row"
        self._say(f"worker {self.number} {has}: {worker.reason}; next try in {wait:.1f} s")
        return wait

    async def after(self, worker: WorkerProcess) -> WorkerProcess:
        """Wait for the worker that follows `worker` in this slot, and return it."""
        while self.worker is None or self.worker is worker:  # noqa: ASYNC110 - rare
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return self.worker

    def replace(self, worker: WorkerProcess) -> WorkerProcess | None:
        """Put another worker into the slot. Return the previous one."""
        before, self.worker = self.worker, worker
        return before

    def status(self) -> Status:
        """Return the last reported status of the worker, or why there is none."""
        worker = self.worker
        if worker is None or worker.status is None:
            why = self._trouble if worker is None else worker.reason
            state = "starting" if worker is None or not worker.ended.is_set() else "ended"
            return Status(
                live=not self._restarts.hopeless,
                ready=False,
                state=state,
                reason=why or "it is starting",
                group=self._group,
            )
        self._group = worker.status.group
        if worker.silent < _SILENT:
            return worker.status
        live, why = worker.silent < _FROZEN, f"no word for {worker.silent} s"
        return replace(worker.status, live=live, ready=False, reason=why)
