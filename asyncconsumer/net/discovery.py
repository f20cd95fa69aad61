"""The discovery of new partitions, new topics and deleted topics."""

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
# responses in a row without a topic, from random brokers, until it counts as deleted
_MISSING_UNTIL_DELETED: Final = 6

PartitionNumbers: TypeAlias = dict[str, tuple[int, ...]]
"""The partition numbers of each topic; topics that do not exist are left out."""


class PartitionDiscovery:
    """A cache of the partitions of topics. It ignores responses with outdated metadata."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics: dict[str, Topic] = {}
        self._asked: frozenset[str] = frozenset()  # topics of the last request
        self._asked_at = -inf
        self._racks: dict[int, str | None] = {}  # rack of every broker so far
        self._missing: Counter[str] = Counter()  # responses in a row that did not have the topic

    async def ask(self, topics: Iterable[str], *, max_age: float = 0.0) -> PartitionNumbers:
        """Return the partition numbers of those topics that exist.

        A result that is less than `max_age` seconds old is reused.
        """
        names, now = frozenset(topics), asyncio.get_running_loop().time()
        if not names <= self._asked or now - self._asked_at >= max_age:
            await self._ask(sorted(names))
            self._asked, self._asked_at = names, now
        return {
            name: tuple(sorted(topic.partitions))
            for name, topic in self._topics.items()
            if name in names
        }

    def racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks of each partition's replicas, as of the last `ask`.

        A broker that is down keeps its rack, so that its restart does not cause a rebalance. The
        result is empty for a cluster without racks.
        """
        if not any(self._racks.values()):
            return {}

        @lru_cache(maxsize=1_000)  # many partitions share few sets of replicas
        def racks_of(replicas: tuple[int, ...]) -> frozenset[str]:
            return frozenset(rack for node in replicas if (rack := self._racks.get(node)))

        return {
            TopicPartition(name, number): racks_of(partition.replicas)
            for name in topics
            if name in self._topics
            for number, partition in self._topics[name].partitions.items()
        }

    async def _ask(self, names: Sequence[str]) -> None:
        metadata, before, self._topics = await self._cluster.refresh(names), self._topics, {}
        self._racks |= {node: broker.rack for node, broker in metadata.brokers.items()}
        for name in self._missing.keys() - set(names):
            del self._missing[name]
        for name in names:
            topic, known = metadata.topics.get(name), before.get(name)
            if topic is None or isinstance(topic.error, UnknownTopicOrPartition):
                self._missing[name] += 1
                if known is not None and self._missing[name] < _MISSING_UNTIL_DELETED:
                    self._topics[name] = known
                continue
            del self._missing[name]
            if topic.error is None and not _is_older(topic, known):
                self._topics[name] = topic
            elif known is not None:
                self._topics[name] = known


async def partitions_of(
    cluster: Cluster, topics: Iterable[str], every_ms: int
) -> AsyncIterator[PartitionNumbers]:
    """Yield the partitions of topics as soon as they are known, and again after each change.

    Brokers do not announce changes, so metadata is requested every `every_ms` milliseconds. Nothing
    is yielded while no broker responds. Partitions that only later values contain must be read from
    the beginning, because their records were written after the topic was first read.
    """
    log, discovery, names = RateLimitedLogger(_log), PartitionDiscovery(cluster), list(topics)
    last: PartitionNumbers | None = None
    while True:
        try:
            current = await discovery.ask(names)
        except ConsumerError as error:
            log.warning("failed to refresh the metadata of topics: %s", error)
        else:
            if current != last:
                last = current
                yield dict(current)
        await asyncio.sleep(every_ms / 1000)


def _is_older(topic: Topic, before: Topic | None) -> bool:
    """Return whether the metadata of a topic is older than its metadata `before`.

    Partitions are only added to a topic, so fewer partitions mean old metadata. A re-created topic
    has another id, and counts as newer.
    """
    return (
        before is not None
        and topic.topic_id == before.topic_id
        and len(topic.partitions) < len(before.partitions)
    )
