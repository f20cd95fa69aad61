"""Memberships without a coordinated group: partitions assigned by the user, or whole topics."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from math import inf
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConsumerError
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.subscription import PatternSubscription, Subscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.discovery import PartitionDiscovery, Partitions
from asyncconsumer.types import OUTSIDER, MemberIdentity, TopicPartition

_log: Final = logging.getLogger(__name__)


class GrouplessMembership:
    """The base of memberships whose partitions are never revoked by a group."""

    deadline: Final = inf
    last_heartbeat: Final = -inf
    lost: Final = False
    awaiting_assignment: Final = False
    identity: Final[MemberIdentity] = OUTSIDER
    settles_after: Final = 0.0

    def __init__(self) -> None:
        self._changed = asyncio.Event()  # the assigned partitions or the subscription
        self._changed.set()

    def rebalance_pending(self) -> bool:
        """Return whether the partitions or topics changed since the last assignment."""
        return self._changed.is_set()

    async def leave(self) -> None:
        """Do nothing: there is no group to leave."""


class ManualMembership(GrouplessMembership):
    """A membership with the partitions that the user assigned.

    `starts` holds start offsets of some of them.
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
        """The empty set: no topic is subscribed."""
        return frozenset()

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield the assigned partitions after each call of `assign`."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield Assignment(dict(self._partitions), starts=dict(self._starts))


class TopicsMembership(GrouplessMembership):
    """A membership with all partitions of the subscribed topics, without a group.

    Topic metadata is refreshed every `metadata_refresh_ms`. Partitions that appear later are fresh.
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
        self._seconds_between_looks = metadata_refresh_ms / 1000
        self.subscribe(subscription)

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription."""
        self._subscription = subscription
        self._growth = PartitionDiscovery(self._cluster)
        self._found: Partitions | None = None  # None until the first metadata
        self._changed.set()

    @property
    def is_current(self) -> bool:
        """Whether metadata for the current subscription has been fetched."""
        return self._found is not None

    @property
    def topics(self) -> frozenset[str]:
        """The existing subscribed topics, as of the last metadata refresh."""
        return frozenset(self._found or ())

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield all partitions of the subscription whenever the set changes."""
        quiet, assigned = RateLimitedLogger(_log), frozenset[TopicPartition]()
        while True:
            self._changed.clear()
            wanted, first = self._subscription, self._found is None
            try:
                found = await self._look(wanted)
            except ConsumerError as error:
                if not error.retriable:
                    raise
                quiet.warning("no metadata of %s: %s", wanted, error)
            else:
                if wanted is not self._subscription:
                    continue
                self._found = found
                now = frozenset(TopicPartition(name, n) for name, ns in found.items() for n in ns)
                if first or now != assigned:
                    fresh = frozenset() if first else now - assigned
                    assigned = now
                    yield Assignment(dict.fromkeys(sorted(now), 0), fresh=fresh)
            try:
                async with asyncio.timeout(self._seconds_between_looks):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _look(self, wanted: Subscription) -> Partitions:
        if not isinstance(wanted, PatternSubscription):
            return await self._growth.ask(wanted.names)
        every = {*await self._cluster.topic_names(), *(self._found or ())}
        names = wanted.matching(every, exclude_internal=self._exclude_internal)
        return await self._growth.ask(names)
