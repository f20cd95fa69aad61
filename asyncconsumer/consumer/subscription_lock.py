"""A lock that serializes changes of the subscription and lets only one task leave the group."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from asyncconsumer.aio.wait import wait_set

_SECONDS_TO_CHANGE: Final = 5.0  # to wait for a change in progress when the consumer closes


class SubscriptionLock:
    """A lock for changes of a consumer's subscription.

    One task at a time may change the subscription. One task at a time may leave the group, also
    while another task changes the subscription.
    """

    def __init__(self) -> None:
        self._idle = asyncio.Event()
        self._idle.set()
        self._nobody_leaves = asyncio.Event()  # cleared while a task leaves the group
        self._nobody_leaves.set()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Return an async context manager that holds the lock during one change."""
        while not self._idle.is_set():
            await self._idle.wait()
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until no change of the subscription is in progress, for at most 5 seconds."""
        await wait_set(self._idle, _SECONDS_TO_CHANGE)

    async def leaving(self, leave: Callable[[], Awaitable[None]]) -> None:
        """Call `leave`, which leaves the group.

        If another task is leaving the group already, wait until that task is done instead.
        """
        if not self._nobody_leaves.is_set():
            await self._nobody_leaves.wait()
            return
        self._nobody_leaves.clear()
        try:
            await leave()
        finally:
            self._nobody_leaves.set()
