"""The replacement of workers while the app runs: on reload, and one by one at a recycling limit.

New workers join the group before the old ones are drained. If the workers are static members, each
old worker is drained first. Otherwise the new member with its instance id would fence it, and it
could not commit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from asyncconsumer.aio.wait import wait_set
from asyncconsumer.workers.process import Echo, WorkerProcess
from asyncconsumer.workers.recycling import RecycleLimits
from asyncconsumer.workers.slot import Slot, StartWorker

_SECONDS_TO_COME_UP: Final = 60.0
_SECONDS_BETWEEN_CHECKS: Final = 1.0
_SECONDS_AFTER_FAILURE: Final = 60.0

Drain = Callable[[Collection[WorkerProcess]], Awaitable[None]]


class Replacement:
    """The task that replaces workers. It makes one replacement at a time."""

    def __init__(
        self,
        slots: Sequence[Slot],
        start: StartWorker,
        drain: Drain,
        limits: RecycleLimits,
        echo: Echo,
    ) -> None:
        self._slots = slots
        self._start = start
        self._drain = drain
        self._limits = limits
        self._echo = echo
        self._reload_requested = asyncio.Event()
        self._no_recycling_before = 0.0  # time of the loop

    def reload(self) -> None:
        """Request the replacement of all workers. `run` performs it."""
        self._reload_requested.set()

    async def run(self) -> None:
        """Replace all workers after each `reload`, and replace a worker that exceeds a limit."""
        while True:
            if await wait_set(self._reload_requested, _SECONDS_BETWEEN_CHECKS):
                self._reload_requested.clear()
                await self._reload()
            else:
                await self._recycle()

    # --- reload ----------------------------------------------------------------------------------

    async def _reload(self) -> None:
        if not any(slot.worker is not None and slot.worker.static for slot in self._slots):
            await self._reload_together()
            return
        self._echo("reload: draining and replacing the static members one by one")
        for slot in self._slots:
            if slot.worker is None:
                continue
            if (reason := await self._restart(slot, slot.worker)) is not None:
                self._echo(
                    f"reload failed at worker {slot.number}, the other workers continue: {reason}"
                )
                return
        self._echo("reload: done")

    async def _reload_together(self) -> None:
        self._echo(f"reload: starting {len(self._slots)} new workers")
        old = await self._exchange(self._slots)
        if isinstance(old, str):
            self._echo(f"reload failed, the old workers continue: {old}")
            return
        self._echo("reload: the new workers are up, draining the old ones")
        await self._drain(old)
        self._echo("reload: done")

    # --- recycling -------------------------------------------------------------------------------

    async def _recycle(self) -> None:
        """Replace the first worker that exceeds a limit."""
        now = asyncio.get_running_loop().time()
        if now < self._no_recycling_before:
            return
        for slot in self._slots:
            worker = slot.worker
            if worker is None or not worker.up or worker.ended.is_set():
                continue
            if (limit := self._limits.exceeded_by(worker.usage(now))) is None:
                continue
            self._echo(f"worker {slot.number} is replaced: {limit}")
            if (reason := await self._replace(slot, worker)) is not None:
                self._no_recycling_before = now + _SECONDS_AFTER_FAILURE
                self._echo(f"worker {slot.number} could not be replaced: {reason}")
            return

    async def _replace(self, slot: Slot, worker: WorkerProcess) -> str | None:
        """Replace one worker. Return the reason of a failure, or None after a success."""
        if worker.static:
            return await self._restart(slot, worker)
        old = await self._exchange([slot])
        if isinstance(old, str):
            return old
        await self._drain(old)
        return None

    # --- parts of both ---------------------------------------------------------------------------

    async def _exchange(self, slots: Sequence[Slot]) -> list[WorkerProcess] | str:
        """Put new workers into slots. Return the old workers, which still run.

        If a new worker does not join the group, keep the old workers in the slots, and return the
        reason as text.
        """
        new: list[WorkerProcess] = []
        try:
            for slot in slots:
                new.append(await self._start(slot.number))  # noqa: PERF401 - keeps those before an error
            reason = await self._startup_error(new)
        except OSError as error:
            reason = f"the process cannot be started: {error}"
        if reason is not None:
            await self._drain(new)
            return reason
        old = [slot.replace(worker) for slot, worker in zip(slots, new, strict=True)]
        return [worker for worker in old if worker is not None]

    async def _restart(self, slot: Slot, worker: WorkerProcess) -> str | None:
        """Drain a worker, and wait until its slot has started another one that joins the group.

        Return None, or a reason if the new worker does not join.
        """
        await self._drain([worker])
        try:
            async with asyncio.timeout(_SECONDS_TO_COME_UP):
                new = await slot.wait_restarted(worker)
        except TimeoutError:
            return f"no process was started within {_SECONDS_TO_COME_UP:g} s"
        return await self._startup_error([new])

    async def _startup_error(self, workers: Collection[WorkerProcess]) -> str | None:
        """Wait until the workers have joined the group.

        Return None, or a reason if one of them does not join.
        """
        try:
            async with asyncio.timeout(_SECONDS_TO_COME_UP):
                for worker in workers:
                    await worker.up_or_ended.wait()
        except TimeoutError:
            return f"the new workers did not join the group within {_SECONDS_TO_COME_UP:g} s"
        return next(
            (worker.reason for worker in workers if not worker.up or worker.ended.is_set()), None
        )
