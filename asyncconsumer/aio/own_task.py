"""A context manager that is kept open by a task of its own.

It can therefore stay open after the task that requested it has ended.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

from asyncconsumer.aio.start_task import start_task


class OwnTask:
    """A task that enters an async context manager in `open`, and exits it in `close`.

    A task group must be exited by the task that entered it. With this class, `open` and `close` may
    be called by different tasks.
    """

    def __init__(self, resource: AbstractAsyncContextManager[Any], name: str) -> None:
        self._resource = resource
        self._name = name
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Enter the context manager in a new task. Raise its error if that fails."""
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        self._task = start_task(loop, self._run(opened), self._name)
        await opened

    async def close(self) -> None:
        """Exit the context manager, and wait for its end."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            async with self._resource:
                opened.set_result(None)
                await self._closing.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)
