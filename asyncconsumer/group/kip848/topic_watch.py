"""Topic metadata that a member of a KIP-848 group needs.

It resolves topic ids to names, because coordinators use ids. It remembers which partitions existed
at the first lookup. It matches patterns if the coordinator cannot.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias
from uuid import UUID

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import AccessDenied, ConsumerError
from asyncconsumer.group.subscription import PatternSubscription, Subscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.metadata import Metadata
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_LOOKS: Final = 5.0

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id, as coordinators send them."""


@dataclass(frozen=True, slots=True)
class ResolvedSubscription:
    """A subscription, and its topics as of the last lookup."""

    subscription: Subscription
    names: frozenset[str]


class TopicWatch:
    """The topic lookups of one member.

    `changed` is set when the resolved subscription changes, `news` when topic ids get names.
    """

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        changed: asyncio.Event,
        news: asyncio.Event,
        randomness: Random,
    ) -> None:
        self.subscribed: ResolvedSubscription | None = None  # None until the first lookup
        self._matching_here = False  # the coordinator cannot match patterns
        self._cluster = cluster
        self.wanted = subscription
        self._asked = asyncio.Event()
        self._changed = changed
        self._news = news
        self._randomness = randomness
        self._seen: dict[UUID, int] = {}  # number of partitions at the first lookup
        self._names: dict[UUID, str] = {}
        self._unnamed: frozenset[UUID] = frozenset()
        self._in_need = asyncio.Event()

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription. It takes effect after its topics are looked up."""
        self.wanted = subscription
        self._asked.set()

    @property
    def is_current(self) -> bool:
        """Whether the topics of the current subscription have been looked up."""
        return self.subscribed is not None and self.subscribed.subscription == self.wanted

    def topics(self, owned: Partitions) -> frozenset[str]:
        """Return the topics of the subscription and those of the owned partitions."""
        looked = self.subscribed.names if self.is_current and self.subscribed else frozenset()
        return looked | {self._names[one] for one in owned if one in self._names}

    def known(self, partitions: Partitions) -> Partitions:
        """Return the partitions whose topic names are known, and request the missing names."""
        self._unnamed = frozenset(partitions.keys() - self._names.keys())
        if self._unnamed:
            self._in_need.set()
        return {one: numbers for one, numbers in partitions.items() if one in self._names}

    def named(self, partitions: Partitions) -> list[TopicPartition]:
        """Return known partitions with their topic names."""
        return [
            TopicPartition(self._names[one], number)
            for one, numbers in partitions.items()
            for number in sorted(numbers)
        ]

    def match_here(self) -> None:
        """Match the pattern in this client periodically, because the coordinator cannot."""
        if not self._matching_here:
            self._matching_here = True
            self._asked.set()

    def fresh(self, partitions: Partitions) -> Partitions:
        """Return the partitions that appeared after the first lookup of their subscription."""
        return {
            one: frozenset(number for number in numbers if number >= self._seen.get(one, 0))
            for one, numbers in partitions.items()
        }

    # --- in the background -----------------------------------------------------------------------

    async def look(self) -> None:
        """Look up the topics of the subscription when it changes, or periodically when matching."""
        quiet, delays = RateLimitedLogger(_log), backoff(0.05, 1.0, self._randomness)
        while True:
            self._asked.clear()
            try:
                found = await self._look(self.wanted)
            except ConsumerError as error:
                if not error.retriable:
                    raise
                quiet.warning("no news of topics: %s", error)
                await asyncio.sleep(next(delays))
                continue
            if found != self.subscribed:
                self.subscribed = found
                self._changed.set()
            again = self._matching_here and isinstance(found.subscription, PatternSubscription)
            try:
                async with asyncio.timeout(_SECONDS_BETWEEN_LOOKS if again else None):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def _look(self, wanted: Subscription) -> ResolvedSubscription:
        if isinstance(wanted, PatternSubscription):
            existing = await self._cluster.recent_topic_names()
            names = wanted.matching(existing, exclude_internal=True)
        else:
            names = wanted.names
        metadata = await self._cluster.refresh(names)
        if isinstance(
            wanted, PatternSubscription
        ):  # an unauthorized topic would fail the heartbeat
            names = frozenset(name for name in names if not _is_denied(metadata, name))
        first = self.subscribed is None or self.subscribed.subscription != wanted
        for topic in (metadata.topics[name] for name in names if name in metadata.topics):
            if topic.topic_id is None:
                continue  # it does not exist yet: all of it will be fresh
            self._names[topic.topic_id] = topic.name
            if first:
                self._seen.setdefault(topic.topic_id, len(topic.partitions))
        return ResolvedSubscription(wanted, names)

    async def name(self) -> None:
        """Look up missing topic names whenever there are any, until all are known."""
        quiet = RateLimitedLogger(_log)
        while True:
            await self._in_need.wait()
            delays = backoff(0.05, 1.0, self._randomness)
            while wanted := self._unnamed - self._names.keys():
                try:
                    await self._ask(wanted)
                except ConsumerError as error:
                    if not error.retriable:
                        raise
                    quiet.warning("no names of %d topics: %s", len(wanted), error)
                if self._unnamed - self._names.keys():
                    await asyncio.sleep(next(delays))
            self._in_need.clear()

    async def _ask(self, wanted: frozenset[UUID]) -> None:
        found = await self._cluster.names_of(wanted)
        if found:
            self._names |= found
            self._news.set()


def _is_denied(metadata: Metadata, topic: str) -> bool:
    told = metadata.topics.get(topic)
    return told is not None and isinstance(told.error, AccessDenied)
