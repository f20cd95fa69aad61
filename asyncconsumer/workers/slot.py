"""The place of a worker among others: whoever dies in it is replaced."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

from asyncconsumer.web.status import Status
from asyncconsumer.workers.process import Say, WorkerProcess
from asyncconsumer.workers.restarts import Restarts

# Seconds without a report: its event loop is blocked, or it is frozen.
_SILENT: Final = 10
_FROZEN: Final = 60  # by now others in the group have its partitions, and it does not get well
_SECONDS_BETWEEN_LOOKS: Final = 0.05

Start = Callable[[int], Awaitable[WorkerProcess]]


class Slot:
    """Has one worker at a time, or waits until it is time for the next."""

    def __init__(self, number: int, start: Start, say: Say, randomness: Random) -> None:
        self.number: Final = number
        self.worker: WorkerProcess | None = None
        self._start = start
        self._say = say
        self._restarts = Restarts(randomness)
        self._trouble = "it has not said anything yet"
        self._group: str | None = None  # as a worker told, also when it is gone

    async def keep(self) -> None:
        """See to it that there is a worker."""
        while True:
            here = self.worker
            if here is None:
                await self._have_one_started()
            elif not here.ended.is_set():
                await self._wait_a_second(here)
            else:
                await asyncio.sleep(self._wait_after(here))
                if self.worker is here:  # and was not replaced
                    self.worker = None

    async def _have_one_started(self) -> None:
        try:
            made = await self._start(self.number)
        except OSError as error:  # too many processes, no memory, no such file for a while
            wait, self._trouble = self._restarts.after(0), f"it cannot be started: {error}"
            self._say(f"worker {self.number}: {self._trouble}; next try in {wait:.1f} s")
            await asyncio.sleep(wait)
            return
        if self.worker is None:
            self.worker = made
        else:  # a reload was quicker
            made.drain()

    async def _wait_a_second(self, worker: WorkerProcess) -> None:
        """For its end. Seconds are counted: who was stopped along with it must not blame it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await worker.ended.wait()
            return
        if worker.status is not None:  # before that it may be importing for long
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
        """Whoever comes after one that has ended."""
        while self.worker is None or self.worker is worker:  # noqa: ASYNC110 - it is rare
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return self.worker

    def replace(self, worker: WorkerProcess) -> WorkerProcess | None:
        """Have another one, that is up; who was there before."""
        before, self.worker = self.worker, worker
        return before

    def status(self) -> Status:
        """How its worker stands, as last told."""
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
