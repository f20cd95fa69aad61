"""The times of heartbeats, on virtual time."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.errors import RequestTimedOut
from asyncconsumer.group.classic.heartbeats import Heartbeats
from asyncconsumer.group.classic.reactions import Reaction
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Address, MemberIdentity

if TYPE_CHECKING:
    from asyncconsumer.net.coordinator import Coordinator

pytestmark = pytest.mark.fast

HERE = Address("here", 9092)
INTERVAL = 1.0


class Listening:
    """A coordinator that accepts every heartbeat and records when it arrived."""

    group_id = "g"
    address = HERE

    def __init__(self) -> None:
        self.received: list[float] = []

    async def request(self, *_: Any, **__: Any) -> Any:
        self.received.append(asyncio.get_running_loop().time())
        return SimpleNamespace(to_object=lambda: {"error_code": 0})

    @asynccontextmanager
    async def reached(self, _: Any) -> AsyncIterator["Listening"]:
        yield self


@asynccontextmanager
async def beating(randomness: Random) -> AsyncIterator[tuple[Heartbeats, list[float]]]:
    listening = Listening()
    heartbeats = Heartbeats(
        cast("Coordinator", listening),
        session_ms=6000,
        rebalance_ms=60_000,
        interval_ms=int(INTERVAL * 1000),
        randomness=randomness,
        suspensions=Suspensions(),
    )

    async def run() -> None:
        async for news in heartbeats.results():
            raise AssertionError(news)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run())
        yield heartbeats, listening.received
        task.cancel()


def begin(heartbeats: Heartbeats, generation: int = 1) -> float:
    now = asyncio.get_running_loop().time()
    heartbeats.begin(MemberIdentity("m", generation, None), now, HERE)
    return now


@simulated(range(3))
async def test_members_of_a_generation_send_heartbeats_in_step() -> None:
    randomness, everyone = Random(1), []
    for _ in range(5):
        async with beating(randomness) as (heartbeats, received):
            began = begin(heartbeats)
            await asyncio.sleep(10)
            again = begin(heartbeats, 2)
            await asyncio.sleep(10)
        gaps = [later - earlier for earlier, later in itertools.pairwise(received)]
        assert max(gaps) <= INTERVAL + 0.001
        assert len(received) <= 20 / (0.5 * INTERVAL) + 4
        everyone.append([moment - (began if moment < again else again) for moment in received])
    for other in everyone[1:]:
        assert other == pytest.approx(everyone[0], abs=0.01)


@simulated([1])
async def test_session_ends_are_not_synchronized_with_heartbeats_of_others() -> None:
    session = 6.0
    async with beating(Random(1)) as (heartbeats, received):
        begin(heartbeats)
        await asyncio.sleep(200)
    ends = [last + session for last in received if last < 150]
    waits = [next(moment for moment in received if moment > end) - end for end in ends]
    assert sum(waits) / len(waits) < 0.6 * INTERVAL


class Silent(Listening):
    """A coordinator that is unreachable for a while, and then accepts every heartbeat."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    async def request(self, *asked: Any, timeout: float = 0.0, **__: Any) -> Any:
        wait = self._until - asyncio.get_running_loop().time()
        if wait > timeout:
            await asyncio.sleep(timeout)
            raise RequestTimedOut(HERE, "nothing")
        await asyncio.sleep(max(wait, 0.0))
        return await super().request(*asked)


async def after_a_silence_of(seconds: float) -> tuple[float, list[Reaction]]:
    """Return until when the member owns its partitions, and the reactions it got."""
    heartbeats = Heartbeats(
        cast("Coordinator", Silent(seconds)),
        session_ms=6000,
        rebalance_ms=60_000,
        interval_ms=1000,
        randomness=Random(1),
        suspensions=Suspensions(),
    )
    reported: list[Reaction] = []

    async def run() -> None:
        async for news in heartbeats.results():
            reported.append(news.reaction)
            heartbeats.end()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run())
        begin(heartbeats)
        await asyncio.sleep(8.0)
        deadline = heartbeats.deadline
        task.cancel()
    return deadline, reported


@simulated(range(20))
async def test_a_response_within_the_session_keeps_the_membership() -> None:
    deadline, reported = await after_a_silence_of(5.0)
    assert deadline > 8.0
    assert reported == []


@simulated(range(20))
async def test_a_response_after_the_session_does_not_extend_it() -> None:
    """A coordinator that is still loading the group accepts heartbeats of expired members."""
    deadline, reported = await after_a_silence_of(6.1)
    assert deadline == -inf
    assert reported == [Reaction.REJOIN_EMPTY]


@simulated([1])
async def test_a_late_heartbeat_of_a_thread_does_not_extend_the_session() -> None:
    async with beating(Random(1)) as (heartbeats, _):
        began = begin(heartbeats)
        heartbeats.heartbeat_from_thread(began + 4.9)
        assert heartbeats.deadline == pytest.approx(began + 4.9 + 5.4)
        heartbeats.heartbeat_from_thread(began + 4.9 + 5.1)
        assert heartbeats.deadline == pytest.approx(began + 4.9 + 5.4)


@simulated(range(3))
async def test_hurry_sends_extra_heartbeats_for_a_short_time() -> None:
    async with beating(Random(1)) as (heartbeats, received):
        began = begin(heartbeats)
        heartbeats.hurry()
        await asyncio.sleep(0.5)
        assert len([moment for moment in received if moment < began + 0.5]) >= 4
        await asyncio.sleep(9.5)
        late = [moment for moment in received if moment >= began + 5]
        assert 5 <= len(late) <= 10  # one to two heartbeats in each interval


@simulated(range(3))
@pytest.mark.parametrize(("seconds", "joins_in_time"), [(15, True), (30, False)])
async def test_heartbeats_of_a_thread_do_not_extend_the_time_to_rejoin(
    seconds: int, *, joins_in_time: bool
) -> None:
    """A member that joins too late may join while others own its former assignment."""
    heartbeats = Heartbeats(
        cast("Coordinator", Listening()),
        session_ms=6000,
        rebalance_ms=20_000,
        interval_ms=1000,
        randomness=Random(1),
        suspensions=Suspensions(),
    )
    began = begin(heartbeats)
    for _ in range(seconds):  # the event loop is blocked
        await asyncio.sleep(1)
        heartbeats.heartbeat_from_thread(asyncio.get_running_loop().time())
    assert heartbeats.deadline == pytest.approx(began + 18)
    with heartbeats.joining():
        certain = began + seconds + 5.4 if joins_in_time else began + 18
        assert heartbeats.deadline == pytest.approx(certain)
    assert heartbeats.deadline == pytest.approx(began + 18)
