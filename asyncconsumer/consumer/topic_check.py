"""A check for subscribed topics that do not exist, so that a wrong name is noticed."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Final

from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.subscription_spec import ManualPartitions, SubscriptionSpec
from asyncconsumer.errors import ConsumerError, UnknownTopicOrPartition
from asyncconsumer.group.subscription import PatternSubscription, TopicSubscription
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.protocol.messages import MetadataRequest

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_WARNINGS: Final = 60.0
_SECONDS_TO_CREATE: Final = 0.5
_SECONDS_BETWEEN_LOOKS: Final = 0.1  # while topics are being created
_LOOKS_AFTER_CREATION: Final = 20


class TopicCheck:
    """A check for the missing topics of a subscription. `run` repeats it."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, spec: SubscriptionSpec) -> None:
        self.missing: frozenset[str] = frozenset()  # topics that do not exist
        self.unmatched: str | None = None  # why a pattern matches no topic
        self.spec = spec
        self._cluster = cluster
        self._creates = config.member.allow_auto_create_topics
        self._seconds_between_looks = config.engine.metadata_refresh_ms / 1000
        self._warned: tuple[str, float] = "", -inf  # the last warning, and when it was logged

    @property
    def reason(self) -> str | None:
        """The health reason that names the missing topics, or None if none is missing."""
        if not self.missing:
            return None
        names = ", ".join(map(repr, sorted(self.missing)))
        noun = "topics" if len(self.missing) > 1 else "topic"
        verb = "do" if len(self.missing) > 1 else "does"
        return f"{noun} {names} {verb} not exist. Create the missing topics, or check the names"

    async def look(self, spec: SubscriptionSpec | None = None) -> None:
        """Look up which subscribed topics do not exist.

        If this consumer may not read a topic, raise its error. `spec` is the new subscription; None
        means that it has not changed.
        """
        spec = self.spec if spec is None else spec
        if isinstance(spec, TopicSubscription):
            await self._look_for(spec.names, raises=True)
        else:
            try:
                await self._look_at(spec)
            except ConsumerError as error:
                if not error.retriable:
                    raise
                _log.warning("failed to look up topics: %s", error)  # `run` and fetching try again
        self.spec = spec
        self._warn(self.reason or self.unmatched)

    async def run(self, assigned: Callable[[], bool]) -> None:
        """Repeat the lookup while topics are missing, or while nothing is assigned.

        `assigned` returns whether any partition is assigned.
        """
        while True:
            creating = self._creates and self.missing
            await asyncio.sleep(_SECONDS_TO_CREATE if creating else self._seconds_between_looks)
            if self.missing or self.unmatched or not assigned():
                try:
                    await self.look()
                except ConsumerError as error:
                    _log.debug("failed to look up topics: %s", error)

    async def _look_at(self, spec: PatternSubscription | ManualPartitions) -> None:
        if isinstance(spec, PatternSubscription):
            await self._look_for_matches(spec)
        else:
            await self._look_for({tp.topic for tp in spec}, raises=False)

    async def _look_for(self, names: Collection[str], *, raises: bool) -> None:
        errors = await self._errors_of(names)
        for error in errors.values():
            unknown = isinstance(error, UnknownTopicOrPartition)
            if raises and error is not None and not unknown and not error.retriable:
                raise error
        self.unmatched = None
        self.missing = _unknown(errors)
        if self.missing and self._creates:
            await self._create()

    async def _create(self) -> None:
        """Create the missing topics, and wait up to 2 seconds until they exist.

        Without the wait, the first assignment would be empty.
        """
        await self._cluster.ask_any(MetadataRequest(sorted(self.missing), create=True))
        for _ in range(_LOOKS_AFTER_CREATION):
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            self.missing = _unknown(await self._errors_of(self.missing))
            if not self.missing:
                return

    async def _errors_of(self, names: Collection[str]) -> dict[str, ConsumerError | None]:
        topics = (await self._cluster.refresh(names)).topics if names else {}
        return {name: topics[name].error for name in sorted(names) if name in topics}

    async def _look_for_matches(self, pattern: PatternSubscription) -> None:
        every = await self._cluster.topic_names()
        self.missing = frozenset()
        self.unmatched = None
        if not pattern.matching(every, exclude_internal=False):
            self.unmatched = _why_unmatched(pattern, every)

    def _warn(self, reason: str | None) -> None:
        """Log a reason when it first applies, and again each minute while it applies."""
        now, (last, warned_at) = asyncio.get_running_loop().time(), self._warned
        if reason is not None and (reason != last or now - warned_at >= _SECONDS_BETWEEN_WARNINGS):
            self._warned = reason, now
            _log.warning("%s", reason)


def _unknown(errors: Mapping[str, ConsumerError | None]) -> frozenset[str]:
    """Return the topics that do not exist."""
    return frozenset(
        name for name, error in errors.items() if isinstance(error, UnknownTopicOrPartition)
    )


def _why_unmatched(pattern: PatternSubscription, every: list[str]) -> str:
    text = pattern.expression.pattern
    near = next(filter(pattern.expression.match, every), None)
    if near is None:
        return f"pattern {text!r} matches no topic"
    return (
        f"pattern {text!r} matches no topic, because it must match the whole name. It matches the "
        f"beginning of {near!r}. To match the whole name, use {text.removesuffix('$') + '.*'!r}"
    )
