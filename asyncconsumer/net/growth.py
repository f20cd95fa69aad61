"""Topics that get more partitions while they are read, or appear, or go."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeAlias

from asyncconsumer.errors import ConsumerError, UnknownTopicOrPartition
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.metadata import Topic
from asyncconsumer.tasks.quiet import QuietLog

_log: Final = logging.getLogger(__name__)
_ENOUGH_DENIALS: Final = 6  # in a row, of brokers chosen by chance, until a topic is believed gone

Partitions: TypeAlias = dict[str, tuple[int, ...]]
"""The numbers of each topic's partitions; a topic that is not there is left out."""


class Growth:
    """Asks for the partitions of topics, and does not believe who has not heard the news."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[str, Topic] = {}
        self._denied: Counter[str] = Counter()  # how often in a row, of what was seen before

    async def ask(self, topics: Iterable[str]) -> Partitions:
        """The partitions of these topics now."""
        wanted = sorted(set(topics))
        metadata, before, self._seen = await self._cluster.refresh(wanted), self._seen, {}
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
        return {name: tuple(sorted(topic.partitions)) for name, topic in self._seen.items()}


async def partitions_of(
    cluster: Cluster, topics: Iterable[str], every_ms: int
) -> AsyncIterator[Partitions]:
    """The partitions of these topics, as soon as a broker tells, and again whenever they changed.

    Brokers tell nobody, so one of them is asked every `every_ms`. While none answers, nothing is
    yielded, and what is known stays. What is new is to be read from its beginning: it was written
    after we began to read the topic.
    """
    quiet, growth, wanted = QuietLog(_log), Growth(cluster), list(topics)
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
