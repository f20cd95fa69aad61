"""The supervisor of worker processes, each of which is a member of the group.

The supervisor restarts workers that end, replaces them on reload or after a limit, and drains them
at shutdown. It does not import the app and reads no records. An error in the app cannot crash it.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, Final

from asyncconsumer.aio.scope import Scope
from asyncconsumer.web.status import Status
from asyncconsumer.workers.process import SUCCESS, Echo, WorkerProcess, WorkerSpec
from asyncconsumer.workers.recycling import NO_LIMITS, RecycleLimits
from asyncconsumer.workers.replacement import Replacement
from asyncconsumer.workers.slot import Slot
from asyncconsumer.workers.worker import DRAINED, FAILED, UNUSABLE

_WORKERS_TO_REMOVE: Final = 2  # workers that are asked to remove a dead member
_SECONDS_TO_LEAVE: Final = 10.0  # after the grace period, to commit, leave the group and exit


class Supervisor:
    """The supervisor of an app's workers. The caller awaits `run`.

    Signal handlers call `stop` and `reload`.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        workers: int,
        echo: Echo,
        randomness: Random,
        limits: RecycleLimits = NO_LIMITS,
    ) -> None:
        self._spec = spec
        self._print = echo
        self._slots = [
            Slot(number, self._start, self._echo_unless_stopping, randomness)
            for number in range(1, workers + 1)
        ]
        self._alive: set[WorkerProcess] = set()
        self._watchers = Scope("supervisor")
        self._stop_calls = 0
        self._stopping = asyncio.Event()  # no more workers are started
        self._replacement = Replacement(
            self._slots, self._start, self._drain, limits, self._echo_unless_stopping
        )
        self._ever_up = False  # a worker has joined the group once, so the app can run
        self._code = DRAINED
        self.unusable: str | None = None  # why the app cannot run
        self.paused_topics: frozenset[str] = frozenset()
        self._dead_members: list[str] = []  # member ids, for the next worker to remove

    async def run(self) -> int:
        """Run until `stop` is called or the app cannot run. Return the exit code."""
        async with self._watchers:
            async with Scope("slots") as slots:
                for slot in self._slots:
                    slots.start(slot.run(), f"slot {slot.number}")
                slots.start(self._replacement.run(), "replacement")
                await self._stopping.wait()
            await self._drain(set(self._alive))
        return self._code

    def stop(self) -> None:
        """Drain all workers.

        A second call skips the grace period, and a third one kills the workers.
        """
        self._stop_calls += 1
        if self._stop_calls == 1:
            grace = self._grace(self._alive)
            self._echo(f"draining for up to {grace:g} s; another signal stops at once")
            self._stopping.set()
        elif self._stop_calls == 2:
            self._echo("stopping at once; records in progress are abandoned")
            self._code = self._code or FAILED
            for worker in self._alive:
                worker.stop_now()
            asyncio.get_running_loop().call_later(_SECONDS_TO_LEAVE, self._kill)
        else:
            self._kill()

    def _grace(self, workers: Collection[WorkerProcess]) -> float:
        """Return the grace period in seconds: the configured one, or the longest of the workers."""
        if self._spec.grace is not None:
            return self._spec.grace
        return max((worker.grace for worker in workers), default=0.0)

    def _kill(self) -> None:
        for worker in self._alive:
            worker.kill()

    def reload(self) -> None:
        """Request the replacement of all workers by new ones, which import changed code."""
        self._replacement.reload()

    def pause_only(self, topics: Collection[str]) -> None:
        """Pause these topics in all workers, also in those that start later. Resume all others."""
        self.paused_topics = frozenset(topics)
        for worker in self._alive:
            worker.pause_only(topics)

    def _echo(self, message: str) -> None:
        with suppress(OSError):  # a closed pipe must not prevent the shutdown
            self._print(message)

    def _echo_unless_stopping(self, message: str) -> None:
        if not self._stopping.is_set():
            self._echo(message)

    def status_by_worker(self) -> Mapping[str, Status]:
        """Return the status of each worker by its number, as text."""
        statuses = {str(slot.number): slot.status() for slot in self._slots}
        if self._stopping.is_set():
            reason = "the app is stopping"
            changes: dict[str, Any] = {"ready": False, "state": "draining", "reason": reason}
            return {name: replace(status, **changes) for name, status in statuses.items()}
        return statuses

    async def _start(self, number: int) -> WorkerProcess:
        worker = await WorkerProcess.start(number, self._spec, self._echo_unless_stopping)
        self._alive.add(worker)
        for member_id in self._dead_members:
            worker.remove(member_id)
        self._dead_members.clear()
        if self.paused_topics:
            worker.pause_only(self.paused_topics)
        self._watchers.start(self._watch(worker), f"worker {number}")
        return worker

    async def _watch(self, worker: WorkerProcess) -> None:
        try:
            await worker.watch()
        finally:
            self._alive.discard(worker)
        if worker.member_id is not None and worker.reason != SUCCESS:
            self._remove(worker.member_id)
        if worker.unfinished is not None:
            self._echo(f"worker {worker.number} did not finish {worker.unfinished}")
            self._code = self._code or FAILED
        elif self._stopping.is_set() and not worker.drained:  # no other worker replaces it
            self._echo(f"worker {worker.number} died while draining: {worker.reason}")
            self._code = self._code or FAILED
        self._ever_up |= any(other.up for other in (worker, *self._alive))
        if worker.unusable and not self._ever_up and not self._stopping.is_set():
            self.unusable = worker.reason
            self._code = UNUSABLE
            self._stopping.set()

    def _remove(self, member_id: str) -> None:
        """Ask two workers to remove a dead member from the group.

        Workers have connections to brokers, and the supervisor has none. Two are asked, because one
        of them may be dying as well. If no worker is alive, the next one is asked when it starts.
        """
        workers = sorted(self._alive, key=lambda worker: not worker.up)[:_WORKERS_TO_REMOVE]
        for worker in workers:
            worker.remove(member_id)
        if not workers:
            self._dead_members.append(member_id)

    async def _drain(self, workers: Collection[WorkerProcess]) -> None:
        """Drain workers, and wait until they have ended. Kill workers that take too long."""
        for worker in workers:
            worker.drain()
        try:
            async with asyncio.timeout(self._grace(workers) + _SECONDS_TO_LEAVE):
                for worker in workers:
                    await worker.ended.wait()
        except TimeoutError:
            for worker in self._alive & set(workers):
                self._echo(f"worker {worker.number} did not end in time and is killed")
                self._code = self._code or FAILED
                worker.kill()
            for worker in workers:
                await worker.ended.wait()
