"""The check for partitions that stay unassigned because a static member returned to its group.

The coordinator answers such a member with its last assignment and starts no rebalance (KIP-345).
Two cases leave partitions without an owner. A cooperative member may have revoked a partition and
died before it rejoined, so the generation that assigns the partition never begins. Or the member
returns with more topics than before. The check runs only while one of them is possible.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConsumerError
from asyncconsumer.group.classic.coordinator_client import CoordinatorClient
from asyncconsumer.group.classic.description import GroupDescription
from asyncconsumer.group.classic.leader import JoinResult
from asyncconsumer.group.classic.subscribed_topics import SubscribedTopics
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)


class UnassignedCheck:
    """A check for unassigned partitions after a generation that may have left some.

    A leader that withheld partitions from the assignment checks the members. It requests a
    rebalance if a member id of its generation was replaced, or after the rebalance timeout. A
    static follower that may have returned checks the partitions. It requests a rebalance if the
    same partitions are unassigned in two checks.
    """

    def __init__(
        self, client: CoordinatorClient, topics: SubscribedTopics, rebalance_ms: int
    ) -> None:
        self._client = client
        self._topics = topics
        self._rebalance_seconds = rebalance_ms / 1000
        self._joined: JoinResult | None = None  # the generation to check
        self._began = 0.0
        # the partitions that were unassigned in the last check
        self._missing: frozenset[TopicPartition] = frozenset()
        self._log = RateLimitedLogger(_log)

    def on_generation(
        self, joined: JoinResult, assignments: Mapping[str, Collection[TopicPartition]]
    ) -> None:
        """Begin a check if this generation needs one. Otherwise drop any pending check."""
        self._began, self._missing = asyncio.get_running_loop().time(), frozenset()
        if joined.decides:
            needed = self._topics.withheld(assignments) and any(
                row.get("group_instance_id") is not None for row in joined.members
            )
        else:
            needed = joined.as_new and joined.identity.instance_id is not None
        self._joined = joined if needed else None

    async def reason(self) -> str | None:
        """Return the reason for a rebalance, or None if none is needed.

        A check that fails stays pending, so that the next call repeats it.
        """
        if (joined := self._joined) is None:
            return None
        try:
            group = await self._client.describe()
            if joined is not self._joined or not group.stable:
                return None
            if joined.decides:
                return self._check_members(joined, group)
            return await self._check_topics(joined, group)
        except ConsumerError as error:
            self._log.warning("failed to look for unassigned partitions; trying again: %s", error)
            return self._check_time() if joined.decides and joined is self._joined else None

    def _check_members(self, joined: JoinResult, group: GroupDescription) -> str | None:
        if group.member_ids != {row["member_id"] for row in joined.members}:
            return "a static member returned and its revoked partitions are unassigned"
        return self._check_time()

    def _check_time(self) -> str | None:
        if asyncio.get_running_loop().time() - self._began < self._rebalance_seconds:
            return None
        return "revoked partitions were not assigned within the rebalance timeout"

    async def _check_topics(self, joined: JoinResult, group: GroupDescription) -> str | None:
        before, now = self._missing, await self._topics.unassigned(group.assigned)
        if joined is not self._joined:
            return None
        self._missing = now
        if not now:
            self._joined = None
        return "subscribed partitions are unassigned" if before & now else None
