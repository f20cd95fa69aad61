"""The turns of concurrent calls that read from one consumer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A lock for calls that read. A call lets those go first that wait already."""

    def __init__(self) -> None:
        self._free = asyncio.Event()
        self._free.set()
        self._waiting = 0

    @property
    def taken(self) -> bool:
        """Whether a call has the turn or waits for it."""
        return self._waiting > 0 or not self._free.is_set()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Return an async context manager for one turn."""
        if self._waiting:
            await asyncio.sleep(0)
        self._waiting += 1
        try:
            while not self._free.is_set():
                await self._free.wait()
        finally:
            self._waiting -= 1
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()
