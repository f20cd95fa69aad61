"""Waits for conditions and events, in virtual time."""

import asyncio

import pytest

from asyncconsumer.aio.start_task import start_task
from asyncconsumer.aio.wait import POLL_SECONDS, wait_set, wait_until
from asyncconsumer.testing.virtual_time import simulated

pytestmark = pytest.mark.fast


def now() -> float:
    return asyncio.get_running_loop().time()


@simulated(seeds=range(3))
async def test_a_true_condition_does_not_wait() -> None:
    began = now()
    await wait_until(lambda: True)
    assert now() == began


@simulated(seeds=range(3))
async def test_a_condition_is_checked_at_the_interval() -> None:
    began, checks = now(), list[float]()

    def third() -> bool:
        checks.append(now() - began)
        return len(checks) == 3

    await wait_until(third, every=2.0)
    assert checks == pytest.approx([0.0, 2.0, 4.0])
    checks.clear()
    await wait_until(third)
    assert now() - began == pytest.approx(4.0 + 2 * POLL_SECONDS)


@simulated(seeds=range(3))
async def test_a_condition_may_be_a_coroutine_function() -> None:
    checks = list[int]()

    async def second() -> bool:
        await asyncio.sleep(0)
        checks.append(1)
        return len(checks) == 2

    await wait_until(second)
    assert len(checks) == 2


@simulated(seeds=range(3))
async def test_an_error_of_the_condition_is_raised() -> None:
    def fails() -> bool:
        raise ValueError("condition")

    with pytest.raises(ValueError, match="condition"):
        await wait_until(fails)


@simulated(seeds=range(3))
async def test_a_wait_can_be_cancelled() -> None:
    task = start_task(asyncio.get_running_loop(), wait_until(lambda: False))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@simulated(seeds=range(3))
async def test_a_set_event_ends_the_wait() -> None:
    event, began = asyncio.Event(), now()
    asyncio.get_running_loop().call_later(3.0, event.set)
    assert await wait_set(event, 5.0)
    assert now() - began == pytest.approx(3.0)


@simulated(seeds=range(3))
async def test_the_wait_for_an_unset_event_ends_after_its_timeout() -> None:
    event, began = asyncio.Event(), now()
    assert not await wait_set(event, 5.0)
    assert now() - began == pytest.approx(5.0)


@simulated(seeds=range(3))
async def test_an_event_is_awaited_without_a_timeout() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(10_000.0, event.set)
    assert await wait_set(event, None)
