"""Topic metadata that a member of a KIP-848 group needs.

It resolves topic ids to names, because coordinators use ids. It remembers which partitions existed
at the first lookup. It matches patterns if the coordinator cannot, or would match internal topics.
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
from asyncconsumer.aio.wait import wait_set
from asyncconsumer.errors import AccessDenied, ConsumerError
from asyncconsumer.group.subscription import PatternSubscription, Subscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.metadata import Metadata
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_REFRESH_SECONDS: Final = 5.0

PartitionsById: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id, as coordinators send them."""


@dataclass(frozen=True, slots=True)
class ResolvedSubscription:
    """A subscription, and the names of its topics as of the last lookup."""

    subscription: Subscription
    names: frozenset[str]


class TopicWatch:
    """The topic lookups of one member.

    The event `changed` is set when a lookup finds other topics than the last one. The event
    `names_found` is set when a lookup finds names of topic ids.
    """

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        exclude_internal: bool,
        changed: asyncio.Event,
        names_found: asyncio.Event,
        randomness: Random,
    ) -> None:
        self.subscribed: ResolvedSubscription | None = None  # None until the first lookup
        self._matches_locally = False  # True if the coordinator cannot match patterns
        self._cluster = cluster
        self._exclude_internal = exclude_internal
        self.subscription = subscription
        self._requested = asyncio.Event()
        self._changed = changed
        self._names_found = names_found
        self._randomness = randomness
        self._first_counts: dict[UUID, int] = {}  # number of partitions at the first lookup
        self._names: dict[UUID, str] = {}
        self._unnamed: frozenset[UUID] = frozenset()
        self._name_missing = asyncio.Event()

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription. It takes effect when its topics have been looked up."""
        self.subscription = subscription
        self._requested.set()

    @property
    def is_current(self) -> bool:
        """Whether the topics of the current subscription have been looked up."""
        return self.subscribed is not None and self.subscribed.subscription == self.subscription

    def topics(self, owned: PartitionsById) -> frozenset[str]:
        """Return the names of the subscribed topics and those of the owned partitions."""
        names = self.subscribed.names if self.is_current and self.subscribed else frozenset()
        return names | {self._names[topic_id] for topic_id in owned if topic_id in self._names}

    def known(self, partitions: PartitionsById) -> PartitionsById:
        """Return the partitions whose topic names are known. Request a lookup of the other names.

        `partitions` maps topic ids to partition numbers.
        """
        self._unnamed = frozenset(partitions.keys() - self._names.keys())
        if self._unnamed:
            self._name_missing.set()
        return {
            topic_id: numbers for topic_id, numbers in partitions.items() if topic_id in self._names
        }

    def named(self, partitions: PartitionsById) -> list[TopicPartition]:
        """Return `partitions` with topic names in place of topic ids. All names must be known."""
        return [
            TopicPartition(self._names[topic_id], number)
            for topic_id, numbers in partitions.items()
            for number in sorted(numbers)
        ]

    def match_locally(self) -> None:
        """From now on look up all topic names periodically, and match the pattern in this client.

        Call this if the coordinator cannot match patterns.
        """
        if not self._matches_locally:
            self._matches_locally = True
            self._requested.set()

    def regex(self, subscription: Subscription) -> str:
        """Return the pattern that the coordinator matches, or "" to send it topic names instead.

        Coordinators cannot leave out internal topics. If the pattern matches an internal topic and
        these are excluded, this client must match the names.
        """
        if not isinstance(subscription, PatternSubscription) or self._leaves_out(subscription):
            return ""
        return subscription.text

    def _leaves_out(self, pattern: PatternSubscription) -> bool:
        """Return whether internal topics match the pattern and are not subscribed."""
        return self._exclude_internal and pattern.matches_internal

    def fresh(self, partitions: PartitionsById) -> PartitionsById:
        """Return the given partitions that did not exist at the first lookup of their topic."""
        return {
            topic_id: frozenset(n for n in numbers if n >= self._first_counts.get(topic_id, 0))
            for topic_id, numbers in partitions.items()
        }

    # --- in the background -----------------------------------------------------------------------

    async def run_lookups(self) -> None:
        """Look up the subscribed topics when the subscription changes.

        If this client matches a pattern, repeat the lookup periodically.
        """
        log, delays = RateLimitedLogger(_log), backoff(0.05, 1.0, self._randomness)
        while True:
            self._requested.clear()
            try:
                resolved = await self._look_up(self.subscription)
            except ConsumerError as error:
                if not error.retriable:
                    raise
                log.warning("the metadata refresh of subscribed topics failed: %s", error)
                await asyncio.sleep(next(delays))
                continue
            if resolved != self.subscribed:
                self.subscribed = resolved
                self._changed.set()
            subscription = resolved.subscription
            again = isinstance(subscription, PatternSubscription) and (
                self._matches_locally or self._leaves_out(subscription)
            )
            await wait_set(self._requested, _REFRESH_SECONDS if again else None)

    async def _look_up(self, subscription: Subscription) -> ResolvedSubscription:
        if isinstance(subscription, PatternSubscription):
            existing = await self._cluster.recent_topic_names()
            names = subscription.matching(existing, exclude_internal=self._exclude_internal)
        else:
            names = subscription.names
        metadata = await self._cluster.refresh(names)
        if isinstance(subscription, PatternSubscription):
            # an unauthorized topic would fail the heartbeat
            names = frozenset(name for name in names if not _is_denied(metadata, name))
        first = self.subscribed is None or self.subscribed.subscription != subscription
        for topic in (metadata.topics[name] for name in names if name in metadata.topics):
            if topic.topic_id is None:
                continue  # the topic does not exist yet, so all its partitions will be fresh
            self._names[topic.topic_id] = topic.name
            if first:
                self._first_counts.setdefault(topic.topic_id, len(topic.partitions))
        return ResolvedSubscription(subscription, names)

    async def run_name_lookups(self) -> None:
        """Look up unknown topic names whenever `known` requests them, until all are known."""
        log = RateLimitedLogger(_log)
        while True:
            await self._name_missing.wait()
            delays = backoff(0.05, 1.0, self._randomness)
            while subscription := self._unnamed - self._names.keys():
                try:
                    await self._look_up_names(subscription)
                except ConsumerError as error:
                    if not error.retriable:
                        raise
                    log.warning("the names of %d topics are unknown: %s", len(subscription), error)
                if self._unnamed - self._names.keys():
                    await asyncio.sleep(next(delays))
            self._name_missing.clear()

    async def _look_up_names(self, subscription: frozenset[UUID]) -> None:
        resolved = await self._cluster.names_of(subscription)
        if resolved:
            self._names |= resolved
            self._names_found.set()


def _is_denied(metadata: Metadata, topic: str) -> bool:
    result = metadata.topics.get(topic)
    return result is not None and isinstance(result.error, AccessDenied)
