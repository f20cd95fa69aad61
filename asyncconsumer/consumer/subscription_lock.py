"""What a consumer wants is changed by one task at a time, and left once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

_SECONDS_TO_CHANGE: Final = 5.0  # for a subscription to come about, when all is to end


class SubscriptionLock:
    """Who changes something now, and who leaves."""

    def __init__(self) -> None:
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._left = asyncio.Event()  # not set while a group is being left
        self._left.set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Make one, after the one that is under way."""
        while not self._at_rest.is_set():
            await self._at_rest.wait()
        self._at_rest.clear()
        try:
            yield
        finally:
            self._at_rest.set()

    async def rest(self) -> None:
        """Wait for the one that is under way, though not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS_TO_CHANGE):
                await self._at_rest.wait()

    async def leaving(self, leave: Callable[[], Awaitable[None]]) -> None:
        """Leave, or wait for the task that is just doing it."""
        if not self._left.is_set():
            await self._left.wait()
            return
        self._left.clear()
        try:
            await leave()
        finally:
            self._left.set()
