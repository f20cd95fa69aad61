"""Topics that get more partitions while they are read, or appear, or go."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import lru_cache
from math import inf
from typing import Final, TypeAlias

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConsumerError, UnknownTopicOrPartition
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.metadata import Topic
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_ENOUGH_DENIALS: Final = 6  # in a row, of brokers chosen by chance, until a topic is believed gone

Partitions: TypeAlias = dict[str, tuple[int, ...]]
"""The numbers of each topic's partitions; a topic that is not there is left out."""


class PartitionDiscovery:
    """Asks for the partitions of topics, and does not believe who has not heard the news."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[str, Topic] = {}
        self._asked: frozenset[str] = frozenset()  # the last time, and when that was
        self._asked_at = -inf
        self._homes: dict[int, str | None] = {}  # the racks of all brokers that we were told of
        self._denied: Counter[str] = Counter()  # how often in a row, of what was seen before

    async def ask(self, topics: Iterable[str], *, seconds_old: float = 0.0) -> Partitions:
        """The partitions of these topics now; or as they were when they were asked for recently."""
        wanted, now = frozenset(topics), asyncio.get_running_loop().time()
        if not wanted <= self._asked or now - self._asked_at >= seconds_old:
            await self._ask(sorted(wanted))
            self._asked, self._asked_at = wanted, now
        return {
            name: tuple(sorted(topic.partitions))
            for name, topic in self._seen.items()
            if name in wanted
        }

    def racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """In which racks partitions have replicas, as `ask` last found them.

        A broker that is down has not left its rack: groups need not divide anew for a restart.
        Nothing is told of a cluster without racks.
        """
        if not any(self._homes.values()):
            return {}

        @lru_cache(maxsize=1_000)  # few sets of replicas are many partitions'
        def racks_of(replicas: tuple[int, ...]) -> frozenset[str]:
            return frozenset(rack for node in replicas if (rack := self._homes.get(node)))

        return {
            TopicPartition(name, number): racks_of(one.replicas)
            for name in topics
            if name in self._seen
            for number, one in self._seen[name].partitions.items()
        }

    async def _ask(self, wanted: Sequence[str]) -> None:
        metadata, before, self._seen = await self._cluster.refresh(wanted), self._seen, {}
        self._homes |= {node: broker.rack for node, broker in metadata.brokers.items()}
        for name in self._denied.keys() - set(wanted):
            del self._denied[name]
        for name in wanted:
            topic, known = metadata.topics.get(name), before.get(name)
            if topic is None or isinstance(topic.error, UnknownTopicOrPartition):
                self._denied[name] += 1
                if known is not None and self._denied[name] < _ENOUGH_DENIALS:
                    self._seen[name] = known
                continue
            del self._denied[name]
            if topic.error is None and not _is_older(topic, known):
                self._seen[name] = topic
            elif known is not None:
                self._seen[name] = known


async def partitions_of(
    cluster: Cluster, topics: Iterable[str], every_ms: int
) -> AsyncIterator[Partitions]:
    """The partitions of these topics, as soon as a broker tells, and again whenever they changed.

    Brokers tell nobody, so one of them is asked every `every_ms`. While none answers, nothing is
    yielded, and what is known stays. What is new is to be read from its beginning: it was written
    after we began to read the topic.
    """
    quiet, growth, wanted = RateLimitedLogger(_log), PartitionDiscovery(cluster), list(topics)
    told: Partitions | None = None
    while True:
        try:
            found = await growth.ask(wanted)
        except ConsumerError as error:
            quiet.warning("no news of topics: %s", error)
        else:
            if found != told:
                told = found
                yield dict(found)
        await asyncio.sleep(every_ms / 1000)


def _is_older(topic: Topic, before: Topic | None) -> bool:
    """Partitions are only ever added to a topic: who knows fewer is behind."""
    return (
        before is not None
        and topic.topic_id == before.topic_id
        and len(topic.partitions) < len(before.partitions)
    )
