"""A slot of the supervisor, on virtual time."""

import asyncio
import errno
from random import Random
from typing import Any

import pytest

from asyncconsumer.aio.scope import Scope
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.web.status import Status
from asyncconsumer.workers.process import WorkerProcess
from asyncconsumer.workers.slot import Slot
from tests.support.helpers import until

pytestmark = pytest.mark.fast

HEALTHY = Status(live=True, ready=True, state="consuming").as_dict()
UNUSED: Any = None


class Fake(WorkerProcess):
    """A worker without a process, whose reports are sent by a test."""

    def __init__(self, number: int) -> None:
        super().__init__(number, UNUSED, UNUSED, UNUSED)
        self.drains = False

    def drain(self) -> None:
        self.drains = True

    def kill(self, reason: str | None = None) -> None:
        self.reason = reason
        self.ended.set()

    def report_up(self) -> None:
        self._reported["up"] = True

    def report(self) -> None:
        self._on_message({"status": HEALTHY})


class Place:
    """A slot, the processes that were started for it, and its messages."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.started: list[Fake] = []
        self.failures = 0  # the number of starts that fail
        self.spawning = 0.0  # seconds
        self.slot = Slot(1, self._start, self.said.append, Random(1))

    async def _start(self, number: int) -> WorkerProcess:
        if self.failures:
            self.failures -= 1
            raise BlockingIOError(errno.EAGAIN, "no more processes")
        await asyncio.sleep(self.spawning)
        self.started.append(Fake(number))
        return self.started[-1]


@simulated([1])
async def test_a_frozen_worker_is_killed_and_replaced() -> None:
    place = Place()
    async with Scope("test") as scope:
        scope.start(place.slot.run(), "keep")
        await asyncio.sleep(300)
        (first,) = place.started  # a start may take long
        for _ in range(10):
            first.report()
            await asyncio.sleep(50)
        assert not first.ended.is_set()
        assert (place.slot.status().live, place.slot.status().ready) == (True, False)
        await asyncio.sleep(20)
        assert len(place.started) == 2
        assert place.said[0].startswith(
            "worker 1 has ended: killed after 60 s without a report; restart"
        )


async def test_a_suspension_of_the_supervisor_does_not_kill_its_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, loop = Place(), asyncio.get_running_loop()
    async with Scope("test") as scope:
        scope.start(place.slot.run(), "keep")
        await until(lambda: bool(place.started))
        (first,) = place.started
        first.report()
        await asyncio.sleep(0)
        time = loop.time
        monkeypatch.setattr(loop, "time", lambda: time() + 3600)
        await until(lambda: first.silent_seconds > 0)
        assert first.silent_seconds == 1
        assert not first.ended.is_set()


@simulated([1])
async def test_a_failed_start_of_a_worker_is_retried() -> None:
    place = Place()
    place.failures = 6
    async with Scope("test") as scope:
        scope.start(place.slot.run(), "keep")
        await asyncio.sleep(0.1)
        status = place.slot.status()
        assert (status.live, status.ready) == (True, False)
        why = "the process cannot be started: [Errno 11] no more processes"
        assert status.reason == why
        assert place.said[0].startswith(f"worker 1: {why}; next try in 0.")
        while place.failures:
            await asyncio.sleep(0.1)
        assert not place.slot.status().live
        await asyncio.sleep(60)
        assert len(place.started) == 1


@simulated([1])
async def test_a_worker_started_after_its_replacement_drains() -> None:
    place = Place()
    place.spawning = 5.0
    async with Scope("test") as scope:
        scope.start(place.slot.run(), "keep")
        await asyncio.sleep(1)
        fresh = Fake(1)
        assert place.slot.replace(fresh) is None
        await asyncio.sleep(30)
        (late,) = place.started
        assert place.slot.worker is fresh
        assert (fresh.drains, late.drains) == (False, True)


@simulated([1])
async def test_a_slot_stays_started_while_its_worker_is_restarted() -> None:
    place = Place()
    async with Scope("test") as scope:
        scope.start(place.slot.run(), "keep")
        await asyncio.sleep(1)
        place.started[0].report()
        assert not place.slot.status().started  # the worker reports before it has joined
        place.started[0].report_up()
        place.started[0].kill()
        await asyncio.sleep(30)
        assert len(place.started) == 2
        assert not place.started[1].up
        assert place.slot.status().started
        place.started[1].report()
        assert place.slot.status().started
