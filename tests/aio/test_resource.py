"""The ``async with`` block of an `AsyncResource`."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.start_task import start_task

pytestmark = pytest.mark.fast


class Recorder(AsyncResource):
    """A resource that lists its steps. Opening or closing can fail or wait."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.open_error: BaseException | None = None
        self.close_error: BaseException | None = None
        self.opening = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def _open(self, stack: AsyncExitStack) -> None:
        self.steps.append("open first")
        stack.callback(self.steps.append, "close first")
        self.opening.set()
        await self.go_on.wait()
        if self.open_error is not None:
            raise self.open_error
        self.steps.append("open second")
        stack.callback(self.steps.append, "close second")

    async def _before_close(self, error: BaseException | None) -> None:
        self.steps.append(f"before close {error!r}")
        if self.close_error is not None:
            raise self.close_error


async def test_the_block_closes_in_reverse_order() -> None:
    async with Recorder() as resource:
        assert resource.steps == ["open first", "open second"]
    assert resource.steps[2:] == ["before close None", "close second", "close first"]


async def test_an_error_of_the_block_is_raised_unchanged() -> None:
    resource, error = Recorder(), ValueError("block")
    with pytest.raises(ValueError, match="block") as raised:
        async with resource:
            raise error
    assert raised.value is error
    assert resource.steps[2:] == [
        "before close ValueError('block')",
        "close second",
        "close first",
    ]


async def test_a_failed_open_closes_the_opened_part_only() -> None:
    resource = Recorder()
    resource.open_error = ValueError("open")
    with pytest.raises(ValueError, match="open"):
        await resource.__aenter__()
    assert resource.steps == ["open first", "close first"]


async def test_a_resource_can_be_opened_after_a_failed_open() -> None:
    resource = Recorder()
    resource.open_error = ValueError("open")
    with pytest.raises(ValueError, match="open"):
        await resource.__aenter__()
    resource.open_error = None
    async with resource:
        pass
    assert resource.steps[-2:] == ["close second", "close first"]


async def test_a_cancelled_open_closes_the_opened_part() -> None:
    resource = Recorder()
    resource.go_on.clear()
    task = start_task(asyncio.get_running_loop(), resource.__aenter__())
    await resource.opening.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert resource.steps == ["open first", "close first"]


async def test_an_error_before_close_does_not_keep_the_stack_open() -> None:
    resource = Recorder()
    resource.close_error = ValueError("close")
    with pytest.raises(ValueError, match="close"):
        async with resource:
            pass
    assert resource.steps[-2:] == ["close second", "close first"]


class WithTask(AsyncResource):
    """A resource with a background task that never ends by itself."""

    def __init__(self) -> None:
        self.scope = Scope("test")
        self.task: asyncio.Task[bool] | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.scope)
        self.task = self.scope.start(asyncio.Event().wait(), "wait")


async def test_a_cancelled_block_raises_its_cancellation_and_ends_the_tasks() -> None:
    resource, inside = WithTask(), asyncio.Event()

    async def run() -> None:
        async with resource:
            inside.set()
            await asyncio.Event().wait()

    task = start_task(asyncio.get_running_loop(), run())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert resource.task is not None
    assert resource.task.cancelled()


async def test_an_error_of_the_block_is_not_wrapped_into_a_group() -> None:
    resource = WithTask()
    with pytest.raises(ValueError, match="block"):
        async with resource:
            raise ValueError("block")
    assert resource.task is not None
    assert resource.task.cancelled()


class Failed(Recorder):
    """A resource whose background task has failed while the block ran."""

    def _after_close(self) -> None:
        self.steps.append("after close")
        raise RuntimeError("background")


async def test_an_error_after_the_close_is_raised_from_a_block_without_error() -> None:
    resource = Failed()
    with pytest.raises(RuntimeError, match="background"):
        async with resource:
            pass
    assert resource.steps[-2:] == ["close first", "after close"]


async def test_an_error_of_the_block_replaces_an_error_after_the_close() -> None:
    resource = Failed()
    with pytest.raises(ValueError, match="block"):
        async with resource:
            raise ValueError("block")
    assert resource.steps[-1] == "close first"
