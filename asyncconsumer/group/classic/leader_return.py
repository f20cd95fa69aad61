"""The lookup of assigned partitions by a static leader that has returned to its group.

The coordinator answers such a leader with the last assignment and starts no rebalance (KIP-345,
KIP-814). New partitions may have been added meanwhile, and only a leader watches for these. So the
leader reads from the coordinator which partitions are assigned, and compares them with the existing
ones.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConsumerError
from asyncconsumer.group.classic.coordinator_client import CoordinatorClient
from asyncconsumer.group.classic.leader import JoinResult
from asyncconsumer.group.classic.subscribed_topics import SubscribedTopics

_log: Final = logging.getLogger(__name__)


class LeaderReturn:
    """A lookup of the group's assigned partitions, by a static leader that has returned.

    It sends DescribeGroups, and is pending until it succeeds.
    """

    def __init__(self, client: CoordinatorClient, topics: SubscribedTopics) -> None:
        self._client = client
        self._topics = topics
        self._pending: JoinResult | None = None
        self._began = asyncio.Event()
        self._log = RateLimitedLogger(_log)

    def on_generation(self, joined: JoinResult) -> None:
        """Begin a lookup if this member may be a leader that returned.

        Otherwise drop a pending lookup of an earlier generation.
        """
        self._pending = joined if joined.may_be_returned_leader else None
        if self._pending is not None:
            self._began.set()

    async def wait(self, seconds: float) -> None:
        """Wait for up to `seconds` until a lookup is pending."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._began.wait()
        self._began.clear()

    async def resume(self) -> None:
        """Do a pending lookup, and pass the assigned partitions to `SubscribedTopics`.

        A lookup that fails stays pending, so that the next call repeats it. If the lookup shows
        that another member leads the group, the partitions are not passed.
        """
        if (joined := self._pending) is None:
            return
        try:
            group = await self._client.describe()
        except ConsumerError as error:
            self._log.warning("failed to look up the assigned partitions; trying again: %s", error)
            return
        if self._pending is not joined or not group.stable:
            return  # a rebalance has begun or has ended
        self._pending = None
        if joined.leads or joined.leader not in group.member_ids:
            self._topics.resume(group.assigned)
