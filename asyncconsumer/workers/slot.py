"""A slot of the supervisor, which restarts its worker when the worker has ended."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Final

from asyncconsumer.aio.wait import wait_set, wait_until
from asyncconsumer.web.status import Status
from asyncconsumer.workers.process import Echo, WorkerProcess
from asyncconsumer.workers.restarts import Restarts

# Seconds without a report. The event loop is blocked, or the process is suspended.
_NOT_READY_AFTER: Final = 10
_KILL_AFTER: Final = 60  # the session has timed out by then, and other members own its partitions

StartWorker = Callable[[int], Awaitable[WorkerProcess]]


class Slot:
    """A place for one worker process. It starts the next worker after the last one has ended."""

    def __init__(self, number: int, start: StartWorker, echo: Echo, randomness: Random) -> None:
        self.number: Final = number
        self.worker: WorkerProcess | None = None
        self._start = start
        self._echo = echo
        self._restarts = Restarts(randomness)
        self._start_error = "the worker has not started yet"
        self._came_up = False  # a worker of this slot has joined the group once
        self._group: str | None = None  # last reported group id, also after the worker has ended

    async def run(self) -> None:
        """Start a worker whenever the slot has none, and watch it."""
        while True:
            worker = self.worker
            if worker is None:
                await self._start_worker()
            elif not worker.ended.is_set():
                await self._watch_a_second(worker)
            else:
                await asyncio.sleep(self._restart_delay(worker))
                if self.worker is worker:  # not replaced by a reload
                    self.worker = None

    async def _start_worker(self) -> None:
        try:
            worker = await self._start(self.number)
        except OSError as error:  # such as too many processes or no memory
            delay = self._restarts.next_delay(0)
            self._start_error = f"the process cannot be started: {error}"
            self._echo(f"worker {self.number}: {self._start_error}; next try in {delay:.1f} s")
            await asyncio.sleep(delay)
            return
        if self.worker is None:
            self.worker = worker
        else:  # a reload has started another worker meanwhile
            worker.drain()

    async def _watch_a_second(self, worker: WorkerProcess) -> None:
        """Wait up to a second for the end of a worker, and count the seconds without a report.

        Unlike a clock, the count does not advance while the supervisor itself is suspended. A
        worker that sends no report for too long is killed.
        """
        if await wait_set(worker.ended, 1.0):
            return
        if worker.status is not None:  # before the first report, imports may take long
            worker.silent_seconds += 1
        if worker.silent_seconds >= _KILL_AFTER:
            worker.kill(f"killed after {worker.silent_seconds} s without a report")

    def _restart_delay(self, worker: WorkerProcess) -> float:
        self._came_up |= worker.up
        delay = self._restarts.next_delay(asyncio.get_running_loop().time() - worker.started)
        times = self._restarts.in_a_row
        ended = "has ended" if times == 1 else f"has ended {times} times in a row"
        self._echo(f"worker {self.number} {ended}: {worker.reason}; restart in {delay:.1f} s")
        return delay

    async def wait_restarted(self, worker: WorkerProcess) -> WorkerProcess:
        """Wait until another worker has replaced `worker` in this slot. Return the new one."""
        await wait_until(lambda: self.worker is not None and self.worker is not worker)
        assert self.worker is not None
        return self.worker

    def replace(self, worker: WorkerProcess) -> WorkerProcess | None:
        """Put `worker` into the slot. Return the previous worker."""
        before, self.worker = self.worker, worker
        return before

    def status(self) -> Status:
        """Return the status that the worker reported last, or one that says why there is none."""
        worker = self.worker
        self._came_up |= worker is not None and worker.up
        if worker is None or worker.status is None:
            reason = self._start_error if worker is None else worker.reason
            state = "starting" if worker is None or not worker.ended.is_set() else "ended"
            return Status(
                live=not self._restarts.failing,
                ready=False,
                started=self._came_up,
                state=state,
                reason=reason or "the worker is starting",
                group=self._group,
            )
        self._group = worker.status.group
        if worker.silent_seconds < _NOT_READY_AFTER:
            return replace(worker.status, started=self._came_up)
        live = worker.silent_seconds < _KILL_AFTER
        reason = f"no report for {worker.silent_seconds} s"
        return replace(worker.status, live=live, ready=False, started=self._came_up, reason=reason)
