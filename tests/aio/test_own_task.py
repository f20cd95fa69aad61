"""A resource stays open after the task that has opened it, and its errors are raised."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from asyncconsumer.aio.own_task import OwnTask

pytestmark = pytest.mark.fast


async def test_a_resource_outlives_the_task_that_opens_it() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def resource() -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(asyncio.Event().wait())
            events.append("opened")
            yield
            work.cancel()
        events.append("closed")

    task = OwnTask(resource(), "resource")
    async with asyncio.TaskGroup() as group:
        group.create_task(task.open())
    assert events == ["opened"]
    async with asyncio.TaskGroup() as group:
        group.create_task(task.close())
    assert events == ["opened", "closed"]


async def test_an_error_of_open_is_raised_and_close_returns() -> None:
    task = OwnTask(_Closed(), "resource")
    with pytest.raises(ConnectionError):
        await task.open()
    await task.close()


class _Closed(AbstractAsyncContextManager[None]):
    async def __aenter__(self) -> None:
        raise ConnectionError("closed")

    async def __aexit__(self, *_: object) -> None:
        pass
