"""The topics to which a classic member subscribes, their partitions, and changes of both."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from asyncconsumer.group.assignors import Racks
from asyncconsumer.group.subscription import (
    PatternSubscription,
    Subscription,
    TopicSubscription,
)
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.discovery import PartitionDiscovery, PartitionNumbers
from asyncconsumer.types import TopicPartition

_NO_TOPIC: Final = TopicSubscription(())


class _TopicSnapshot(NamedTuple):
    """The topic names that matched a pattern, and the loop time at which they were looked up."""

    names: frozenset[str] = frozenset()
    time: float = -inf


class SubscribedTopics:
    """The topics of one member, with a check for changes since the last rebalance.

    While the member leads its group, the topics of all members are checked as well.
    """

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        exclude_internal: bool,
        refresh_seconds: float = 0.0,
        racks_matter: bool = False,
    ) -> None:
        self.suspended = False  # no topic is subscribed for now
        self._subscription = subscription
        self._cluster = cluster
        self._exclude_internal = exclude_internal
        self._refresh_seconds = refresh_seconds  # seconds between calls of `changed`
        self._racks_matter = racks_matter  # whether a leader watches changes of racks
        self._discovery = PartitionDiscovery(cluster)
        self._names: frozenset[str] = frozenset()  # the topic names in the last JoinGroup
        # partitions of the last assignment; None unless this member leads
        self._assigned: PartitionNumbers | None = None
        self._racks: Racks | None = {}  # racks of the partitions in `_assigned`; None if unknown
        self._seen: dict[str, frozenset[int]] = {}  # partitions of each topic when first seen
        self._names_of: Subscription | None = None  # the subscription that `_names` is for
        self._snapshot = _TopicSnapshot()

    @property
    def subscription(self) -> Subscription:
        """The current subscription. It has no topic while it is suspended."""
        return _NO_TOPIC if self.suspended else self._subscription

    @property
    def last_names(self) -> frozenset[str]:
        """The names in the last lookups of topics, if the current subscription includes them."""
        return frozenset(filter(self.includes, self._names | self._snapshot.names))

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription, and end its suspension."""
        self._subscription, self.suspended = subscription, False

    def includes(self, topic: str) -> bool:
        """Return whether the subscription includes a topic of this name."""
        subscription = self.subscription
        if isinstance(subscription, PatternSubscription):
            return bool(subscription.matching([topic], exclude_internal=self._exclude_internal))
        return topic in subscription.names

    async def names(self) -> frozenset[str]:
        """Return the names of the subscribed topics for JoinGroup, and store them for `changed`.

        Recent matches of a pattern are reused, because other members may be waiting in the
        rebalance.
        """
        subscription, first = self.subscription, self.subscription != self._names_of
        age = asyncio.get_running_loop().time() - self._snapshot.time
        if (
            isinstance(subscription, PatternSubscription)
            and not first
            and age < self._refresh_seconds
        ):
            names, partitions = self._snapshot.names, PartitionNumbers()
        else:
            names, partitions = await self._look_up()
        self._names, self._names_of = names, subscription
        if isinstance(subscription, PatternSubscription):  # a deleted topic may be re-created
            self._seen = {name: self._seen[name] for name in names if name in self._seen}
        for name in names - self._seen.keys():
            # topics that match a pattern later, or do not exist yet, are fresh as a whole
            old = first or not isinstance(subscription, PatternSubscription)
            self._seen[name] = frozenset(partitions.get(name, ()) if old else ())
        return names

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return the partition counts of those `topics` that exist, for computing the assignment.

        A later call of `changed` compares with these counts. Recent metadata is reused, because all
        other members are waiting for the assignment.
        """
        names = {*topics, *self._names}
        partitions = await self._discovery.ask(names, max_age=self._refresh_seconds)
        self._assigned = {topic: partitions.get(topic, ()) for topic in topics}
        self._racks = self._discovery.racks(topics)
        return {topic: len(numbers) for topic, numbers in self._assigned.items() if numbers}

    @property
    def racks(self) -> Racks:
        """The racks of the replicas of each partition in the last `partition_counts`."""
        return self._racks or {}

    def resume(self, assigned: PartitionNumbers) -> None:
        """Store the assigned partitions of the group's topics, with which `changed` compares.

        An earlier process of this static leader assigned them. The racks of their replicas at that
        time are not known.
        """
        self._assigned, self._racks = dict(assigned), None

    def follow(self) -> None:
        """Stop comparing partition counts in `changed`, because another member leads the group."""
        self._assigned = None

    def fresh(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the given partitions that did not exist when their topic was first looked up."""
        seen = self._seen
        return frozenset(
            tp for tp in partitions if tp.partition not in seen.get(tp.topic, (tp.partition,))
        )

    def withheld(self, assignments: Mapping[str, Collection[TopicPartition]]) -> bool:
        """Return whether `assignments` leave out a partition that `partition_counts` counted."""
        assigned = {tp for partitions in assignments.values() for tp in partitions}
        return sum(map(len, (self._assigned or {}).values())) > len(assigned)

    async def unassigned(self, assigned: PartitionNumbers) -> frozenset[TopicPartition]:
        """Return the existing partitions of the subscribed topics that are not in `assigned`."""
        names, partitions = await self._look_up()
        if not names <= partitions.keys():
            partitions = await self._discovery.ask({*names, *(self._assigned or {})})
        return frozenset(
            TopicPartition(name, number)
            for name in names
            for number in {*partitions.get(name, ())}.difference(assigned.get(name, ()))
        )

    async def changed(self) -> str | None:
        """Return the reason for a rebalance, or None if topics and partitions have not changed.

        They are compared with those of the last rebalance.
        """
        partitions: PartitionNumbers | None = None
        if isinstance(self.subscription, PatternSubscription):
            matched, partitions = await self._look_up()
            if matched != self._names:
                changed = sorted(matched ^ self._names)
                return f"the topics that match changed: {', '.join(changed)}"
        if (before := self._assigned) is not None:
            if partitions is None:
                partitions = await self._discovery.ask({*before, *self._names})
            now = {topic: partitions.get(topic, ()) for topic in before}
            if now != before:
                return "the partitions of topics changed"
            if self._racks_matter:
                racks = self._discovery.racks(before)
                if self._racks is None:
                    self._racks = racks
                if racks != self._racks:
                    return "the racks of replicas changed"
        return None

    async def _look_up(self) -> tuple[frozenset[str], PartitionNumbers]:
        """Return the names of the subscribed topics, and the partitions of those that exist.

        The mapping of partitions is empty if all names are known and no pattern has to be matched.
        """
        subscription, led = self.subscription, self._assigned or {}
        if isinstance(subscription, PatternSubscription):
            every = await self._cluster.recent_topic_names()
            matching = subscription.matching(every, exclude_internal=self._exclude_internal)
            before = frozenset(filter(self.includes, self._names | self._snapshot.names))
            # brokers with stale metadata miss topics; `PartitionDiscovery` waits for confirmation
            partitions = await self._discovery.ask({*matching, *before, *led})
            matched = frozenset(partitions.keys() & (matching | before))
            # the subscription may have been replaced meanwhile
            if subscription is self.subscription:
                self._snapshot = _TopicSnapshot(matched, asyncio.get_running_loop().time())
            return matched, partitions
        if subscription.names <= self._seen.keys():
            return subscription.names, {}
        return subscription.names, await self._discovery.ask({*subscription.names, *led})
