"""When heartbeats are sent, on virtual time."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from asyncconsumer.group.heartbeats import Heartbeats
from asyncconsumer.model import Address, Identity
from asyncconsumer.testing.clock import simulated

if TYPE_CHECKING:
    from asyncconsumer.net.coordinator import Coordinator

pytestmark = pytest.mark.fast

HERE = Address("here", 9092)
INTERVAL = 1.0


class Listening:
    """A coordinator to whom all is well, and when it was told so by a member."""

    group_id = "g"
    address = HERE

    def __init__(self) -> None:
        self.heard: list[float] = []

    async def request(self, *_: Any, **__: Any) -> Any:
        self.heard.append(asyncio.get_running_loop().time())
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
    )

    async def run() -> None:
        async for news in heartbeats.news():
            raise AssertionError(news)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run())
        yield heartbeats, listening.heard
        task.cancel()


def begin(heartbeats: Heartbeats, generation: int = 1) -> float:
    now = asyncio.get_running_loop().time()
    heartbeats.begin(Identity("m", generation, None), now, HERE)
    return now


@simulated(range(3))
async def test_members_of_a_generation_do_not_go_on_in_step() -> None:
    randomness, places = Random(1), []
    for _ in range(20):
        async with beating(randomness) as (heartbeats, heard):
            began = begin(heartbeats)
            await asyncio.sleep(10)
            begin(heartbeats, 2)
            await asyncio.sleep(10)
        gaps = [later - earlier for earlier, later in itertools.pairwise(heard)]
        assert max(gaps) <= INTERVAL + 0.001
        assert len(heard) <= 20 / INTERVAL + 4
        places.append((heard[-1] - began) % INTERVAL)
    assert max(places) - min(places) > INTERVAL / 2


@simulated(range(3))
async def test_who_hurries_sends_some_more_and_goes_on_as_usual() -> None:
    async with beating(Random(1)) as (heartbeats, heard):
        began = begin(heartbeats)
        heartbeats.hurry()
        await asyncio.sleep(0.5)
        assert len([at for at in heard if at < began + 0.5]) >= 4
        await asyncio.sleep(9.5)
        late = [at for at in heard if at >= began + 5]
        assert 4 <= len(late) <= 6


@simulated(range(3))
async def test_signs_of_life_by_others_do_not_tell_of_a_rebalance_that_we_have_to_join() -> None:
    heartbeats = Heartbeats(
        cast("Coordinator", Listening()),
        session_ms=6000,
        rebalance_ms=20_000,
        interval_ms=1000,
        randomness=Random(1),
    )
    began = begin(heartbeats)
    for _ in range(30):  # the event loop is blocked
        await asyncio.sleep(1)
        heartbeats.sign_of_life(asyncio.get_running_loop().time())
    assert heartbeats.deadline == pytest.approx(began + 18)
    with heartbeats.joining():
        assert heartbeats.deadline == pytest.approx(began + 30 + 5.4)
    assert heartbeats.deadline == pytest.approx(began + 18)
