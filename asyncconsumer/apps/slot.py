"""The place of a worker among others: whoever dies in it is replaced."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Final

from asyncconsumer.apps.process import Say, WorkerProcess
from asyncconsumer.apps.restarts import Restarts
from asyncconsumer.embedding.standing import Standing

_SILENT: Final = 10.0  # seconds without a report: its event loop is blocked, or it is frozen

Start = Callable[[int], Awaitable[WorkerProcess]]


class Slot:
    """Has one worker at a time, or waits until it is time for the next."""

    def __init__(self, number: int, start: Start, say: Say, randomness: Random) -> None:
        self.number: Final = number
        self.worker: WorkerProcess | None = None
        self._start = start
        self._say = say
        self._restarts = Restarts(randomness)

    async def keep(self) -> None:
        """See to it that there is a worker."""
        while True:
            if self.worker is None:
                self.worker = await self._start(self.number)
            here = self.worker
            await here.ended.wait()
            if self.worker is not here:  # it was replaced, and meant to end
                continue
            await asyncio.sleep(self._wait_after(here))
            if self.worker is here:
                self.worker = None

    def _wait_after(self, worker: WorkerProcess) -> float:
        wait = self._restarts.after(asyncio.get_running_loop().time() - worker.started)
        times = self._restarts.in_a_row
        has = "has ended" if times == 1 else f"has ended {times} times in a row"
        self._say(f"worker {self.number} {has}: {worker.reason}; next try in {wait:.1f} s")
        return wait

    def replace(self, worker: WorkerProcess) -> WorkerProcess | None:
        """Have another one, that is up; who was there before."""
        before, self.worker = self.worker, worker
        return before

    def standing(self) -> Standing:
        """How its worker stands, as last told."""
        worker = self.worker
        if worker is None or worker.standing is None:
            why = "it has not said anything yet" if worker is None else worker.reason
            state = "starting" if worker is None or not worker.ended.is_set() else "ended"
            live = not self._restarts.hopeless
            return Standing(live=live, ready=False, state=state, reason=why or "it is starting")
        silent = asyncio.get_running_loop().time() - worker.heard_at
        if silent > _SILENT:
            return replace(worker.standing, ready=False, reason=f"no word for {silent:.0f} s")
        return worker.standing
