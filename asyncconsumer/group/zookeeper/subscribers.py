"""The topics that each member reads, resolved from registrations that any client may write.

Registrations may cost only limited work and memory. A member whose registration exceeds a limit is
ignored, and a warning is logged.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.group.zookeeper.assignors import GroupMemberInfo
from asyncconsumer.group.zookeeper.filters import StreamSubscription, allowed_steps
from asyncconsumer.group.zookeeper.regex_matcher import Steps, TooManySteps
from asyncconsumer.group.zookeeper.topic_source import TopicSource

_log: Final = logging.getLogger(__name__)
_MAX_STREAMS: Final = 2**16  # streams of all members; topics with the same readers count once
_STEPS_AT_ONCE: Final = 20_000  # matching steps before other tasks may run
_STEPS_FOR_A_NAME: Final = 50_000
_STEPS_TO_COMPILE: Final = 4  # steps charged for each character of a pattern that is compiled
_UNLIMITED: Final = 2**62


class Subscribers:
    """A resolver of registrations to topics, within limits of work and memory.

    It never ignores the registration of this member.
    """

    def __init__(self, topics: TopicSource, own_id: str, *, exclude_internal: bool) -> None:
        self._topics = topics
        self._own_id = own_id
        self._exclude_internal = exclude_internal
        self._log_limit = RateLimitedLogger(_log)

    async def read(
        self, subscriptions: Mapping[str, StreamSubscription]
    ) -> tuple[list[GroupMemberInfo], dict[str, tuple[int, ...]]]:
        """Return the members with the topics that each reads, and the partitions of the topics."""
        existing = await self._topics.names() if self._needs_names(subscriptions) else []
        members = await self.members(subscriptions, existing)
        topics = sorted({topic for streams in _different(members).values() for topic in streams})
        partitions = await self._topics.partitions(topics)
        return members, {topic: partitions.get(topic, ()) for topic in topics}

    def _needs_names(self, subscriptions: Mapping[str, StreamSubscription]) -> bool:
        """Return whether the names of all existing topics have to be looked up.

        Patterns need them. So do topics to which only other members subscribe.
        """
        own = subscriptions[self._own_id]
        return any(
            s.wildcard or not s.streams.keys() <= own.streams.keys() for s in subscriptions.values()
        )

    async def members(
        self, subscriptions: Mapping[str, StreamSubscription], existing: Collection[str]
    ) -> list[GroupMemberInfo]:
        """Return the members with the topics that each of them reads."""
        resolved = await self._resolve(subscriptions, existing)
        members = [
            GroupMemberInfo(member_id, resolved[key])
            for member_id, subscription in subscriptions.items()
            if (key := subscription.key) in resolved
        ]
        return await self._within_limit(members)

    async def _resolve(
        self, subscriptions: Mapping[str, StreamSubscription], existing: Collection[str]
    ) -> dict[tuple[str, ...], Mapping[str, int]]:
        """Return the topics of each distinct subscription, by its key.

        A pattern that costs too much is left out, and a warning is logged. This member's
        subscription is resolved first, then the most common ones.
        """
        own = subscriptions[self._own_id].key
        sharing = Counter(s.key for s in subscriptions.values())
        different = {s.key: s for s in subscriptions.values()}
        order = sorted(
            different, key=lambda key: (key != own, -sharing[key], sum(map(len, key)), key)
        )
        steps, names = allowed_steps(existing), frozenset(existing)
        resolved: dict[tuple[str, ...], Mapping[str, int]] = {}
        for key in order:
            subscription = different[key]
            await asyncio.sleep(0)
            if not subscription.wildcard:
                resolved[key] = {
                    topic: count
                    for topic, count in subscription.streams.items()
                    if key == own or topic in names or topic in different[own].streams
                }
                continue
            try:
                limit = None if key == own else steps
                resolved[key] = await self._matched(subscription, existing, limit)
            except TooManySteps:
                self._log_limit.warning(
                    "%d members are ignored: their pattern %.80r takes too long to match",
                    *(sharing[key], subscription.expression),
                )
        return resolved

    async def _matched(
        self, subscription: StreamSubscription, existing: Collection[str], steps: Steps | None
    ) -> dict[str, int]:
        """Return the existing topics that a pattern includes, with the number of streams of each.

        Yield to the event loop between many steps. Raise `TooManySteps` if `steps` do not suffice;
        None means no limit.
        """
        count, taken = next(iter(subscription.streams.values()), 0), 0
        topics: dict[str, int] = {}
        steps = Steps(_UNLIMITED) if steps is None else steps
        limited = steps.remaining < _UNLIMITED
        steps.take(len(subscription.expression) * _STEPS_TO_COMPILE)
        for topic in existing:
            allowed = min(steps.remaining, _STEPS_FOR_A_NAME) if limited else steps.remaining
            for_name = Steps(allowed)
            try:
                if subscription.takes(
                    topic, exclude_internal=self._exclude_internal, steps=for_name
                ):
                    topics[topic] = count
            finally:
                used = allowed - for_name.remaining
                steps.remaining -= used
            taken += used
            if taken >= _STEPS_AT_ONCE:
                taken = 0
                await asyncio.sleep(0)
        return topics

    async def _within_limit(self, members: list[GroupMemberInfo]) -> list[GroupMemberInfo]:
        """Return the members whose streams together do not exceed the limit for a group.

        Members with few streams are kept first. This member is always kept.
        """
        weights = await _weights(members)
        remaining, admitted = _MAX_STREAMS, {self._own_id}
        for member in sorted(members, key=lambda m: (weights[id(m.streams)], m.consumer_id)):
            remaining -= weights[id(member.streams)]
            if remaining >= 0:
                admitted.add(member.consumer_id)
        if ignored := len(members) - len(admitted):
            self._log_limit.warning(
                "%d members are ignored: the group has more than %d streams in all",
                *(ignored, _MAX_STREAMS),
            )
        return [member for member in members if member.consumer_id in admitted]


def _different(members: Collection[GroupMemberInfo]) -> dict[int, Mapping[str, int]]:
    """Return the distinct `streams` mappings of the members, keyed by `id(streams)`."""
    return {id(member.streams): member.streams for member in members}


async def _weights(members: Collection[GroupMemberInfo]) -> dict[int, int]:
    """Return how many streams each distinct subscription adds to the group's limited total.

    The keys are `id(streams)`. Topics with the same readers count once, because they share one list
    of threads.
    """
    different = _different(members)
    readers: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, streams in different.items():
        await asyncio.sleep(0)
        for topic, count in streams.items():
            readers[topic].append((key, max(count, 1)))
    weights = dict.fromkeys(different, 0)
    for together in set(map(tuple, readers.values())):
        for key, count in together:
            weights[key] += count
    return weights
