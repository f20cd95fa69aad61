"""The supervisor of worker processes, each of which is a member of the group.

The supervisor restarts workers that end, replaces them on reload and drains them at the end. It
imports nothing of the app and reads no records, so an error in the app cannot crash it.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from random import Random
from typing import Final

from asyncconsumer.aio.scope import Scope
from asyncconsumer.web.status import Status
from asyncconsumer.workers.process import ENDED_WELL, Say, WorkerProcess, WorkerSpec
from asyncconsumer.workers.slot import Slot
from asyncconsumer.workers.worker import DRAINED, FAILED, UNUSABLE

_SECONDS_TO_COME_UP: Final = 60.0
_ENOUGH_TO_REMOVE: Final = 2
_SECONDS_TO_LEAVE: Final = 10.0  # after the grace period, to commit, leave the group and exit


class Supervisor:
    """A supervisor. The caller awaits `run`; signal handlers call `stop` and `reload`."""

    def __init__(self, job: WorkerSpec, workers: int, say: Say, randomness: Random) -> None:
        self._job = job
        self._say = say
        self._slots = [
            Slot(number, self._start, self._mention, randomness) for number in range(1, workers + 1)
        ]
        self._alive: set[WorkerProcess] = set()
        self._watching = Scope("supervisor")
        self._asked = 0  # calls of `stop`
        self._over = asyncio.Event()  # no more workers are started
        self._reload = asyncio.Event()
        self._ever_up = False  # a worker came up once, so the app can run
        self._code = DRAINED
        self._departed: list[str] = []  # member ids of dead workers, for the next worker to remove

    async def run(self) -> int:
        """Run until `stop`, or until the app turns out to be unusable. Return the exit code."""
        async with self._watching:
            async with Scope("slots") as keeping:
                for slot in self._slots:
                    keeping.start(slot.keep(), f"slot {slot.number}")
                keeping.start(self._reloading(), "reload")
                await self._over.wait()
            await self._end(set(self._alive))
        return self._code

    def stop(self) -> None:
        """Drain all workers. The second call skips the grace period; the third kills them."""
        self._asked += 1
        if self._asked == 1:
            self._say(f"draining, within {self._grace(self._alive):g} s; once more: at once")
            self._over.set()
        elif self._asked == 2:
            self._say("ending at once: what is being worked on is given up")
            self._code = self._code or FAILED
            for one in self._alive:
                one.hurry()
            asyncio.get_running_loop().call_later(_SECONDS_TO_LEAVE, self._kill)
        else:
            self._kill()

    def _grace(self, workers: Collection[WorkerProcess]) -> float:
        """Return the grace period in seconds: as configured, or the longest of the workers."""
        if self._job.grace is not None:
            return self._job.grace
        return max((one.grace for one in workers), default=0.0)

    def _kill(self) -> None:
        for one in self._alive:
            one.kill()

    def reload(self) -> None:
        """Start new workers, then drain the old ones."""
        self._reload.set()

    def _mention(self, sentence: str) -> None:
        """Print a message, unless the supervisor is stopping."""
        if not self._over.is_set():
            self._say(sentence)

    def look(self) -> Mapping[str, Status]:
        """Return the status of each worker, by its number."""
        each = {str(slot.number): slot.status() for slot in self._slots}
        if self._over.is_set():
            return {k: replace(v, ready=False, reason="it is to end") for k, v in each.items()}
        return each

    async def _start(self, number: int) -> WorkerProcess:
        worker = await WorkerProcess.start(number, self._job, self._mention)
        self._alive.add(worker)
        for member_id in self._departed:
            worker.remove(member_id)
        self._departed.clear()
        self._watching.start(self._watch(worker), f"worker {number}")
        return worker

    async def _watch(self, worker: WorkerProcess) -> None:
        try:
            await worker.watch()
        finally:
            self._alive.discard(worker)
        if worker.member_id is not None and worker.reason != ENDED_WELL:
            self._remove(worker.member_id)
        if worker.cut_short is not None:
            self._say(f"worker {worker.number} did not finish, and not commit, {worker.cut_short}")
            self._code = self._code or FAILED
        elif self._over.is_set() and not worker.drained:  # no other worker replaces it
            self._say(f"worker {worker.number} died while it drained: {worker.reason}")
            self._code = self._code or FAILED
        self._ever_up |= any(one.up for one in (worker, *self._alive))
        if worker.unusable and not self._ever_up and not self._over.is_set():
            self._say(f"error: {worker.reason}")
            self._code = UNUSABLE
            self._over.set()

    def _remove(self, member_id: str) -> None:
        """Ask workers to remove a dead member, because the supervisor has no broker connection.

        Workers that are up come first, because they can do so at once. Two are asked, because one
        may be dying as well.
        """
        able = sorted(self._alive, key=lambda one: not one.up)[:_ENOUGH_TO_REMOVE]
        for one in able:
            one.remove(member_id)
        if not able:
            self._departed.append(member_id)

    async def _end(self, workers: Collection[WorkerProcess]) -> None:
        for one in workers:
            one.drain()
        try:
            async with asyncio.timeout(self._grace(workers) + _SECONDS_TO_LEAVE):
                for one in workers:
                    await one.ended.wait()
        except TimeoutError:
            for one in self._alive & set(workers):
                self._say(f"worker {one.number} does not end and is killed")
                self._code = self._code or FAILED
                one.kill()
            for one in workers:
                await one.ended.wait()

    async def _reloading(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            if any(slot.worker is not None and slot.worker.static for slot in self._slots):
                await self._replace_each()
            else:
                await self._replace_all()

    async def _replace_all(self) -> None:
        self._say(f"reload: {len(self._slots)} new workers are started")
        fresh: list[WorkerProcess] = []
        try:
            for slot in self._slots:
                fresh.append(await self._start(slot.number))  # noqa: PERF401 - keeps those before an error
            reason = await self._why_not_up(fresh)
        except OSError as error:
            reason = f"they cannot be started: {error}"
        if reason is not None:
            self._say(f"reload: the new workers do not come up, the old ones go on: {reason}")
            await self._end(fresh)
            return
        old = [slot.replace(one) for slot, one in zip(self._slots, fresh, strict=True)]
        self._say("reload: the new workers are up, the old ones drain")
        await self._end([one for one in old if one is not None])
        self._say("reload: done")

    async def _replace_each(self) -> None:
        """Replace static members one by one, because a new one fences the old one.

        A fenced member can no longer commit.
        """
        self._say("reload: static members are replaced one by one, each drains first")
        for slot in self._slots:
            if (old := slot.worker) is None:
                continue
            await self._end([old])
            try:
                async with asyncio.timeout(_SECONDS_TO_COME_UP):
                    fresh = await slot.after(old)
                reason = await self._why_not_up([fresh])
            except TimeoutError:
                reason = "it is not started"
            if reason is not None:
                self._say(f"reload: worker {slot.number} does not come up, others stay: {reason}")
                return
        self._say("reload: done")

    async def _why_not_up(self, workers: Collection[WorkerProcess]) -> str | None:
        try:
            async with asyncio.timeout(_SECONDS_TO_COME_UP):
                for one in workers:
                    await one.up_or_ended.wait()
        except TimeoutError:
            return f"it takes them longer than {_SECONDS_TO_COME_UP:g} s"
        return next((one.reason for one in workers if not one.up or one.ended.is_set()), None)
