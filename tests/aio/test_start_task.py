"""Tasks start after `start_task` has returned, with any task factory of the loop."""

import asyncio
import inspect
from collections.abc import Coroutine, Generator
from contextvars import Context
from random import Random
from typing import Any

import pytest

from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConnectFailed
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.pool import BrokerPool, Traffic
from tests.support.fake_connections import K, Wire, metadata_answer

EAGER: Any = getattr(asyncio, "eager_task_factory", None)  # since 3.12


def plain(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    *,
    name: str | None = None,
    context: Context | None = None,
    **more: Any,
) -> asyncio.Task[Any]:
    """Create a task like the factories of instrumentation libraries."""
    return asyncio.Task(coro, loop=loop, name=name, context=context, **more)


@pytest.fixture(
    params=[
        None,
        plain,
        pytest.param(EAGER, marks=pytest.mark.skipif(EAGER is None, reason="needs Python 3.12")),
    ],
    ids=["none", "plain", "eager"],
)
async def factory(request: pytest.FixtureRequest) -> None:
    asyncio.get_running_loop().set_task_factory(request.param)


pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("factory")]


def is_closed(coroutine: Coroutine[Any, Any, None]) -> bool:
    assert inspect.iscoroutine(coroutine)
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


async def test_the_first_step_runs_after_the_task_is_stored() -> None:
    seen: list[asyncio.Task[None] | None] = []
    stored: dict[str, asyncio.Task[None]] = {}

    async def work() -> None:
        seen.append(stored.get("task"))

    async with asyncio.TaskGroup() as group:
        stored["task"] = start_task(group, work(), "a name")
        assert seen == []
        assert stored["task"].get_name() == "a name"
    assert seen == [stored["task"]]


async def test_a_task_starts_in_the_next_turn_of_the_loop() -> None:
    order: list[str] = []

    async def work() -> None:
        order.append("work")

    async with asyncio.TaskGroup() as group:
        start_task(group, work())
        asyncio.get_running_loop().call_soon(order.append, "after")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert order == ["work", "after"]


async def test_a_coroutine_cancelled_before_its_first_step_is_closed() -> None:
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    coroutine = work()
    task = start_task(asyncio.get_running_loop(), coroutine)
    task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)  # callbacks
    assert task.cancelled()
    assert begun == []
    assert is_closed(coroutine), "Python would warn that it was never awaited"


async def test_a_coroutine_that_cannot_be_started_is_closed() -> None:
    async def work() -> None: ...

    async with asyncio.TaskGroup() as group:
        pass
    coroutine = work()
    with pytest.raises(RuntimeError):
        start_task(group, coroutine)
    assert is_closed(coroutine)


async def test_a_scope_forgets_a_task_that_ends_immediately() -> None:
    async def work() -> int:
        return 7

    async with Scope("test") as scope:
        task = scope.start(work(), "work")
        assert not task.done()
        assert await scope.outcome(task) == 7
        await asyncio.sleep(0)
        assert scope._tasks == set()


async def test_for_each_calls_all_items_although_the_first_call_fails() -> None:
    tried: list[int] = []

    async def work(number: int) -> None:
        tried.append(number)
        raise ConnectFailed(K, f"number {number}")

    with pytest.raises(ConnectFailed, match="number 0"):
        await for_each(range(5), work)
    assert tried == [0, 1, 2, 3, 4]


# --- a caller that joins a running task must not join a finished one -----------------------------


async def open_at_once(address: Any, config: ConnectionConfig) -> BrokerConnection:
    """Open a connection without a suspension, so that an eager task ends before it is stored."""
    wire = Wire(address)
    wire.answer = lambda request: metadata_answer({1: ("k", 9092)}, {"t": (None, 0, {0: (1, 0)})})
    return wire.connection


async def fail_at_once(address: Any, config: ConnectionConfig) -> BrokerConnection:
    raise ConnectFailed(address, "connection refused")


CONFIG = ConnectionConfig(
    bootstrap_servers="k:9092", reconnect_backoff_ms=1, reconnect_backoff_max_ms=1
)


async def test_a_closed_connection_is_replaced_by_a_new_one() -> None:
    async with BrokerPool(CONFIG, randomness=Random(1), opener=open_at_once) as brokers:
        async with asyncio.timeout(10):
            first = await brokers.connection(K, Traffic.FETCH)
            first.close()
            await first.wait_closed()
            second = await brokers.connection(K, Traffic.FETCH)
        assert second is not first
        assert second.usable
        assert brokers._openings == {}


async def test_later_callers_do_not_join_a_failed_opening() -> None:
    async with BrokerPool(CONFIG, randomness=Random(1), opener=fail_at_once) as brokers:
        for _ in range(3):
            with pytest.raises(ConnectFailed):
                async with asyncio.timeout(10):
                    await brokers.connection(K, Traffic.FETCH)
            assert brokers._openings == {}


async def test_each_refresh_requests_metadata() -> None:
    async with (
        BrokerPool(CONFIG, randomness=Random(1), opener=open_at_once) as brokers,
        Cluster(brokers, randomness=Random(2)) as cluster,
        asyncio.timeout(10),
    ):
        await brokers.connection(K, Traffic.CONTROL)
        answers = [await cluster.refresh(["t"]) for _ in range(3)]
        assert len({id(metadata) for metadata in answers}) == 3
