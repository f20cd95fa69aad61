"""Close stays within its grace period, even if several steps hang."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from asyncconsumer.aio.scope import Scope
from asyncconsumer.rebalance.runner import MembershipRunner
from asyncconsumer.testing.virtual_time import simulated

pytestmark = pytest.mark.fast
GRACE = 10.0


class Step:
    """A step of close that takes some time and may be cancelled."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.grace = 0.0
        self.done = False

    async def __call__(self, *_: object) -> None:
        began = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(self.seconds)
            self.done = True
        finally:
            self.grace = asyncio.get_running_loop().time() - began


async def closed_after(stop: Step, flush: Step, leave: Step) -> float:
    async def forever() -> None:
        await asyncio.Event().wait()

    idle = asyncio.Event()  # a rebalance is running
    rebalancer = SimpleNamespace(
        run=forever,
        stop=stop,
        idle=idle,
        rebalanced=asyncio.Event(),
        streams=SimpleNamespace(close=lambda: None),
    )
    committer = SimpleNamespace(run=forever, flush=flush)
    runner = MembershipRunner(
        "m", *cast("Any", (SimpleNamespace(leave=leave), committer, rebalancer))
    )
    async with Scope("test") as scope:
        runner.start(scope, None)
        began = asyncio.get_running_loop().time()
        await runner.end()
        return asyncio.get_running_loop().time() - began


@simulated([1])
@pytest.mark.parametrize("hanging", [(1, 1, 1), (1, 0, 0), (1, 1, 0), (0, 1, 1), (0, 0, 1)])
async def test_all_steps_of_close_together_stay_within_the_grace(hanging: tuple[int, ...]) -> None:
    steps = [Step(1000.0 if hangs else 0.5) for hangs in hanging]
    assert await closed_after(*steps) <= GRACE
    for step, hangs in zip(steps, hanging, strict=True):
        assert step.done != bool(hangs)
        assert step.grace >= (1.0 if hangs else 0.5)  # each step had its share of the grace
