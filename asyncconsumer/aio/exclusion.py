"""A block that one task at a time may run, whose other tasks wait for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncconsumer.aio.wait import wait_set


class Exclusion:
    """A lock without an order of the waiting tasks. Its state can be read and waited for."""

    def __init__(self) -> None:
        self._free = asyncio.Event()
        self._free.set()
        self.waiting = 0  # the number of tasks that wait for the lock

    @property
    def taken(self) -> bool:
        """Whether a task holds the lock or waits for it."""
        return self.waiting > 0 or not self._free.is_set()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Return an async context manager that waits for the lock, and holds it in its block."""
        self.waiting += 1
        try:
            while not self._free.is_set():
                await self._free.wait()
        finally:
            self.waiting -= 1
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    async def wait_free(self, seconds: float) -> None:
        """Wait until no task holds the lock, for at most this number of seconds."""
        await wait_set(self._free, seconds)
