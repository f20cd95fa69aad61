"""No group at all, or one that only keeps offsets: partitions that the user assigns, or topics."""

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
    """What both kinds have in common: nobody takes partitions away."""

    deadline: Final = inf
    last_heartbeat: Final = -inf
    lost: Final = False
    awaiting_assignment: Final = False
    identity: Final[MemberIdentity] = OUTSIDER
    settles_after: Final = 0.0

    def __init__(self) -> None:
        self._changed = asyncio.Event()  # what is wanted
        self._changed.set()

    def rebalance_pending(self) -> bool:
        """Whether something else is wanted since the last assignment."""
        return self._changed.is_set()

    async def leave(self) -> None:
        """There is nobody to leave."""


class ManualMembership(GrouplessMembership):
    """Has the partitions that it was told to have. `starts` says where to begin with some."""

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
        """Have these, and no others, from now on."""
        self._partitions = dict.fromkeys(partitions, 0)
        self._starts = dict(starts or {})
        self._changed.set()

    @property
    def is_current(self) -> bool:
        """Whether the last assignment is what was last assigned."""
        return not self._changed.is_set()

    @property
    def topics(self) -> frozenset[str]:
        """None: nothing is subscribed."""
        return frozenset()

    async def assignments(self) -> AsyncIterator[Assignment]:
        """What was assigned, whenever that changes."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield Assignment(dict(self._partitions), starts=dict(self._starts))


class TopicsMembership(GrouplessMembership):
    """Has all partitions of its topics, or of those that match, without a group.

    Topics are looked at every `metadata_refresh_ms`. Partitions that appear later are fresh.
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
        """Read these topics instead, from now on."""
        self._subscription = subscription
        self._growth = PartitionDiscovery(self._cluster)
        self._found: Partitions | None = None  # None until the first look
        self._changed.set()

    @property
    def is_current(self) -> bool:
        """Whether the topics that are wanted were looked at."""
        return self._found is not None

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are read now, as of the last look."""
        return frozenset(self._found or ())

    async def assignments(self) -> AsyncIterator[Assignment]:
        """All partitions, whenever there are others than before."""
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
