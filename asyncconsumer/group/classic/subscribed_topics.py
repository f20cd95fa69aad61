"""Which topics a member wants, how many partitions they have, and whether that has changed."""

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
    """What matched our pattern, and when that was."""

    names: frozenset[str] = frozenset()
    at: float = -inf


class SubscribedTopics:
    """Those of one member and, while it leads its group, those of all members."""

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
        self._racks_matter = racks_matter  # to the group, while we lead it
        self._growth = PartitionDiscovery(cluster)
        self._names: frozenset[str] = frozenset()  # as we last told the group
        self._divided: Partitions | None = None  # among the group, if we lead it
        self._racks: Racks = {}  # of what was divided
        self._seen: dict[str, frozenset[int]] = {}  # partitions of each topic, when first seen
        self._known_to: Subscription | None = None  # the one that names were looked up for
        self._last_look = _TopicSnapshot()

    @property
    def subscription(self) -> Subscription:
        """What we want."""
        return self._subscription

    @property
    def last_names(self) -> frozenset[str]:
        """The topics of the last look, of those that are still wanted."""
        return frozenset(filter(self.takes, self._names | self._last_look.names))

    def want(self, subscription: Subscription) -> None:
        """Want something else."""
        self._subscription = subscription

    def takes(self, topic: str) -> bool:
        """Whether we want a topic of that name, should there be one."""
        wanted = self.subscription
        if isinstance(wanted, PatternSubscription):
            return bool(wanted.matching([topic], exclude_internal=self._exclude_internal))
        return topic in wanted.names

    async def names(self) -> frozenset[str]:
        """What we want now, to be told to the group. From now on changes of it matter.

        The group may wait for us: what matched at the last look is good enough until the next.
        """
        wanted, first = self.subscription, self.subscription != self._known_to
        age = asyncio.get_running_loop().time() - self._last_look.at
        if isinstance(wanted, PatternSubscription) and not first and age < self._looks_every:
            names, partitions = self._last_look.names, Partitions()
        else:
            names, partitions = await self._look()
        self._names, self._known_to = names, wanted
        if isinstance(
            wanted, PatternSubscription
        ):  # a topic that went may come back, as another one
            self._seen = {name: self._seen[name] for name in names if name in self._seen}
        for name in names - self._seen.keys():
            # what matches a pattern only later is new as a whole, as is what is not there yet
            old = first or not isinstance(wanted, PatternSubscription)
            self._seen[name] = frozenset(partitions.get(name, ()) if old else ())
        return names

    async def divide(self, topics: Collection[str]) -> dict[str, int]:
        """We lead: how many partitions these have, if they are there. Changes of it matter now.

        The group waits for us: what is known since the last look is good enough until the next.
        """
        wanted = {*topics, *self._names}
        found = await self._growth.ask(wanted, seconds_old=self._looks_every)
        self._divided = {topic: found.get(topic, ()) for topic in topics}
        self._racks = self._growth.racks(topics)
        return {topic: len(numbers) for topic, numbers in self._divided.items() if numbers}

    @property
    def racks(self) -> Racks:
        """In which racks there are replicas of what we divide."""
        return self._racks

    def follow(self) -> None:
        """Another leads: how many partitions there are does not matter to us."""
        self._divided = None

    def fresh(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Those that were not there when we first wanted their topics."""
        seen = self._seen
        return frozenset(
            one for one in partitions if one.partition not in seen.get(one.topic, (one.partition,))
        )

    async def changed(self) -> str | None:
        """Why the group should divide anew, if it should."""
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
        """The names that we want now, and the partitions of those that are there."""
        wanted, led = self.subscription, self._divided or {}
        if isinstance(wanted, PatternSubscription):
            every = await self._cluster.recent_topic_names()
            found = wanted.matching(every, exclude_internal=self._exclude_internal)
            before = frozenset(filter(self.takes, self._names | self._last_look.names))
            # brokers that have not heard the news deny topics: `Growth` knows when to believe them
            partitions = await self._growth.ask({*found, *before, *led})
            matched = frozenset(partitions.keys() & (found | before))
            if wanted is self.subscription:  # and not another by now
                self._last_look = _TopicSnapshot(matched, asyncio.get_running_loop().time())
            return matched, partitions
        if wanted.names <= self._seen.keys():
            return wanted.names, {}
        return wanted.names, await self._growth.ask({*wanted.names, *led})
