"""The subscribed topics of a classic member, their partitions, and changes of both."""

import asyncio
from collections.abc import Collection, Iterable
from math import inf
from typing import NamedTuple

from asyncconsumer.group.assignors import Racks
from asyncconsumer.group.subscription import PatternSubscription, Subscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.discovery import PartitionDiscovery, Partitions
from asyncconsumer.types import TopicPartition


class _TopicSnapshot(NamedTuple):
    """The topics that matched the pattern, and when they were looked up."""

    names: frozenset[str] = frozenset()
    at: float = -inf


class SubscribedTopics:
    """The topics of one member and, while it leads its group, those of all members."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        exclude_internal: bool,
        looks_every: float = 0.0,
        racks_matter: bool = False,
    ) -> None:
        self._subscription = subscription
        self._cluster = cluster
        self._exclude_internal = exclude_internal
        self._looks_every = looks_every  # seconds between calls of `changed`
        self._racks_matter = racks_matter  # whether a leader watches changes of racks
        self._growth = PartitionDiscovery(cluster)
        self._names: frozenset[str] = frozenset()  # as last sent to the group
        self._divided: Partitions | None = None  # the partitions last assigned, while leading
        self._racks: Racks = {}  # of the partitions last assigned
        self._seen: dict[str, frozenset[int]] = {}  # partitions of each topic when first seen
        self._known_to: Subscription | None = None  # the subscription that `_names` is for
        self._last_look = _TopicSnapshot()

    @property
    def subscription(self) -> Subscription:
        """The current subscription."""
        return self._subscription

    @property
    def last_names(self) -> frozenset[str]:
        """The known topics that the current subscription still includes."""
        return frozenset(filter(self.takes, self._names | self._last_look.names))

    def want(self, subscription: Subscription) -> None:
        """Replace the subscription."""
        self._subscription = subscription

    def takes(self, topic: str) -> bool:
        """Return whether the subscription includes a topic of this name."""
        wanted = self.subscription
        if isinstance(wanted, PatternSubscription):
            return bool(wanted.matching([topic], exclude_internal=self._exclude_internal))
        return topic in wanted.names

    async def names(self) -> frozenset[str]:
        """Return the topics to send to the group. `changed` compares with these from now on.

        The group may be waiting, so recent matches of a pattern are reused without a lookup.
        """
        wanted, first = self.subscription, self.subscription != self._known_to
        age = asyncio.get_running_loop().time() - self._last_look.at
        if isinstance(wanted, PatternSubscription) and not first and age < self._looks_every:
            names, partitions = self._last_look.names, Partitions()
        else:
            names, partitions = await self._look()
        self._names, self._known_to = names, wanted
        if isinstance(wanted, PatternSubscription):  # a deleted topic may be re-created
            self._seen = {name: self._seen[name] for name in names if name in self._seen}
        for name in names - self._seen.keys():
            # topics that match a pattern later, or do not exist yet, are fresh as a whole
            old = first or not isinstance(wanted, PatternSubscription)
            self._seen[name] = frozenset(partitions.get(name, ()) if old else ())
        return names

    async def divide(self, topics: Collection[str]) -> dict[str, int]:
        """Return the partition counts of existing topics, to compute the group's assignment.

        `changed` compares with these from now on. The group is waiting, so recent metadata is
        reused.
        """
        wanted = {*topics, *self._names}
        found = await self._growth.ask(wanted, seconds_old=self._looks_every)
        self._divided = {topic: found.get(topic, ()) for topic in topics}
        self._racks = self._growth.racks(topics)
        return {topic: len(numbers) for topic, numbers in self._divided.items() if numbers}

    @property
    def racks(self) -> Racks:
        """The racks of the replicas of each partition last assigned."""
        return self._racks

    def follow(self) -> None:
        """Stop watching partition counts, because another member leads the group."""
        self._divided = None

    def fresh(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that did not exist when their topics were first seen."""
        seen = self._seen
        return frozenset(
            one for one in partitions if one.partition not in seen.get(one.topic, (one.partition,))
        )

    async def changed(self) -> str | None:
        """Return the reason for a rebalance, or None if nothing changed."""
        found: Partitions | None = None
        if isinstance(self.subscription, PatternSubscription):
            matched, found = await self._look()
            if matched != self._names:
                others = sorted(matched ^ self._names)
                return f"other topics match: {', '.join(others)}"
        if (before := self._divided) is not None:
            if found is None:
                found = await self._growth.ask({*before, *self._names})
            now = {topic: found.get(topic, ()) for topic in before}
            if now != before:
                return "topics have other partitions than before"
            if self._racks_matter and self._growth.racks(before) != self._racks:
                return "replicas are in other racks than before"
        return None

    async def _look(self) -> tuple[frozenset[str], Partitions]:
        """Return the names of the subscribed topics, and the partitions of existing ones."""
        wanted, led = self.subscription, self._divided or {}
        if isinstance(wanted, PatternSubscription):
            every = await self._cluster.recent_topic_names()
            found = wanted.matching(every, exclude_internal=self._exclude_internal)
            before = frozenset(filter(self.takes, self._names | self._last_look.names))
            # brokers with stale metadata miss topics; `PartitionDiscovery` waits for confirmation
            partitions = await self._growth.ask({*found, *before, *led})
            matched = frozenset(partitions.keys() & (found | before))
            if wanted is self.subscription:  # unless it was replaced meanwhile
                self._last_look = _TopicSnapshot(matched, asyncio.get_running_loop().time())
            return matched, partitions
        if wanted.names <= self._seen.keys():
            return wanted.names, {}
        return wanted.names, await self._growth.ask({*wanted.names, *led})
