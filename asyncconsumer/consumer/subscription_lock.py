"""A lock that serializes changes of the subscription and lets only one task leave the group."""

import asyncio
from collections.abc import Awaitable, Callable

from asyncconsumer.aio.exclusion import Exclusion


class SubscriptionLock(Exclusion):
    """A lock for changes of a consumer's subscription.

    One task at a time may change the subscription. One task at a time may leave the group, also
    while another task changes the subscription.
    """

    def __init__(self) -> None:
        super().__init__()
        self._nobody_leaves = asyncio.Event()  # cleared while a task leaves the group
        self._nobody_leaves.set()

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
