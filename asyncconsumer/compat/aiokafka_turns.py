"""The turns of concurrent calls that read from one consumer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncconsumer.aio.exclusion import Exclusion


class Turns(Exclusion):
    """A lock for calls that read. A call lets those go first that wait already."""

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Return an async context manager for one turn."""
        if self.waiting:
            await asyncio.sleep(0)
        async with self.hold():
            yield
