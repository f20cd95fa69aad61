"""A lock for changes of the subscription, and for leaving the group once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from asyncconsumer.aio.wait import wait_set

_SECONDS_TO_CHANGE: Final = 5.0  # to wait for a change in progress when the consumer closes


class SubscriptionLock:
    """A lock: one task at a time changes the subscription, and one leaves the group."""

    def __init__(self) -> None:
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._left = asyncio.Event()  # cleared while a task leaves the group
        self._left.set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold the lock for one change, after the change in progress."""
        while not self._at_rest.is_set():
            await self._at_rest.wait()
        self._at_rest.clear()
        try:
            yield
        finally:
            self._at_rest.set()

    async def rest(self) -> None:
        """Wait for the change in progress, for at most 5 seconds."""
        await wait_set(self._at_rest, _SECONDS_TO_CHANGE)

    async def leaving(self, leave: Callable[[], Awaitable[None]]) -> None:
        """Call `leave`, or wait for the task that is leaving already."""
        if not self._left.is_set():
            await self._left.wait()
            return
        self._left.clear()
        try:
            await leave()
        finally:
            self._left.set()
