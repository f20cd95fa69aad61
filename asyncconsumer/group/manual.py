"""Memberships without a group: of partitions that the user assigns, or of whole topics."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from math import inf
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.wait import wait_set
from asyncconsumer.errors import ConsumerError
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.subscription import PatternSubscription, Subscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.discovery import PartitionDiscovery, PartitionNumbers
from asyncconsumer.types import NO_MEMBER, MemberIdentity, TopicPartition

_log: Final = logging.getLogger(__name__)


class GrouplessMembership:
    """The base of memberships whose partitions are never revoked by a group."""

    deadline: Final = inf
    last_heartbeat: Final = -inf
    lost: Final = False
    awaiting_assignment: Final = False
    identity: Final[MemberIdentity] = NO_MEMBER
    settles_after: Final = 0.0

    def __init__(self) -> None:
        # set when the assigned partitions or the subscription changed
        self._changed = asyncio.Event()
        self._changed.set()

    def rebalance_pending(self) -> bool:
        """Return whether the partitions or topics changed since the last assignment."""
        return self._changed.is_set()

    async def leave(self) -> None:
        """Do nothing, because there is no group to leave."""


class ManualMembership(GrouplessMembership):
    """A membership with the partitions that the user assigned.

    `starts` has the start offsets of some of these partitions.
    """

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        starts: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        super().__init__()
        self.assign(partitions, starts)

    def assign(
        self,
        partitions: Iterable[TopicPartition],
        starts: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Replace the assigned partitions and their start offsets."""
        self._partitions = dict.fromkeys(partitions, 0)
        self._starts = dict(starts or {})
        self._changed.set()

    @property
    def is_current(self) -> bool:
        """Whether the last yielded assignment reflects the last call of `assign`."""
        return not self._changed.is_set()

    @property
    def topics(self) -> frozenset[str]:
        """An empty set, because no topic is subscribed."""
        return frozenset()

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assigned partitions after each call of `assign`."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield Assignment(dict(self._partitions), starts=dict(self._starts))


class TopicsMembership(GrouplessMembership):
    """A membership with all partitions of the subscribed topics, without a group.

    Topic metadata is refreshed every `metadata_refresh_ms`. Partitions that appear later are read
    from their beginning.
    """

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        exclude_internal: bool,
        metadata_refresh_ms: int,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._exclude_internal = exclude_internal
        self._refresh_seconds = metadata_refresh_ms / 1000
        self.subscribe(subscription)

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription, and look up its topics."""
        self._subscription = subscription
        self._discovery = PartitionDiscovery(self._cluster)
        self._partitions_by_topic: PartitionNumbers | None = None  # None until the first metadata
        self._changed.set()

    @property
    def is_current(self) -> bool:
        """Whether the topics of the current subscription have been looked up."""
        return self._partitions_by_topic is not None

    @property
    def topics(self) -> frozenset[str]:
        """The existing subscribed topics, as of the last metadata refresh."""
        return frozenset(self._partitions_by_topic or ())

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield all partitions of the subscribed topics, at first and whenever they change."""
        log, assigned = RateLimitedLogger(_log), frozenset[TopicPartition]()
        while True:
            self._changed.clear()
            subscription, first = self._subscription, self._partitions_by_topic is None
            try:
                partitions = await self._look_up(subscription)
            except ConsumerError as error:
                if not error.retriable:
                    raise
                log.warning("the metadata refresh of %s failed: %s", subscription, error)
            else:
                if subscription is not self._subscription:
                    continue
                self._partitions_by_topic = partitions
                topics = partitions.items()
                now = frozenset(TopicPartition(name, n) for name, ns in topics for n in ns)
                if first or now != assigned:
                    fresh = frozenset() if first else now - assigned
                    assigned = now
                    yield Assignment(dict.fromkeys(sorted(now), 0), fresh=fresh)
            await wait_set(self._changed, self._refresh_seconds)

    async def _look_up(self, subscription: Subscription) -> PartitionNumbers:
        if not isinstance(subscription, PatternSubscription):
            return await self._discovery.ask(subscription.names)
        existing = {*await self._cluster.topic_names(), *(self._partitions_by_topic or ())}
        names = subscription.matching(existing, exclude_internal=self._exclude_internal)
        return await self._discovery.ask(names)
