"""Topics that get more partitions while they are read, or appear, or go."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, TypeAlias

from asyncconsumer.errors import ConsumerError, UnknownTopicOrPartition
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.metadata import Metadata, Topic
from asyncconsumer.tasks.quiet import QuietLog

_log: Final = logging.getLogger(__name__)

Partitions: TypeAlias = dict[str, tuple[int, ...]]
"""The numbers of each topic's partitions; a topic that is not there is left out."""


async def partitions_of(
    cluster: Cluster, topics: Iterable[str], every_ms: int
) -> AsyncIterator[Partitions]:
    """The partitions of these topics, as soon as a broker tells, and again whenever they changed.

    Brokers tell nobody, so one of them is asked every `every_ms`. While none answers, nothing is
    yielded, and what is known stays. What is new is to be read from its beginning: it was written
    after we began to read the topic.
    """
    quiet = QuietLog(_log)
    wanted = sorted(set(topics))
    told: Partitions | None = None
    seen: dict[str, Topic] = {}
    while True:
        try:
            seen = _grown(seen, await cluster.refresh(wanted), wanted)
        except ConsumerError as error:
            quiet.warning("no news of topics: %s", error)
        else:
            found = {name: tuple(sorted(topic.partitions)) for name, topic in seen.items()}
            if found != told:
                told = found
                yield dict(found)
        await asyncio.sleep(every_ms / 1000)


def _grown(
    seen: Mapping[str, Topic], metadata: Metadata, wanted: Iterable[str]
) -> dict[str, Topic]:
    """What there is now, without believing a broker that has not heard the news."""
    found = {}
    for name in wanted:
        topic, before = metadata.topics.get(name), seen.get(name)
        if topic is None or isinstance(topic.error, UnknownTopicOrPartition):
            continue  # it is not there
        if topic.error is None and not _is_older(topic, before):
            found[name] = topic
        elif before is not None:
            found[name] = before
    return found


def _is_older(topic: Topic, before: Topic | None) -> bool:
    """Partitions are only ever added to a topic: who knows fewer is behind."""
    return (
        before is not None
        and topic.topic_id == before.topic_id
        and len(topic.partitions) < len(before.partitions)
    )
