"""The subscription of an app, combined from its handlers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.group.subscription import INTERNAL_TOPICS, with_flags
from asyncconsumer.handlers.handler import Handler
from asyncconsumer.metrics.recorder import Recorder


class AppConsumer(Consumer[Any, Any]):
    """The consumer of an app. It reads retry topics together with their source topics."""

    def __init__(
        self,
        *topics: str,
        co_assigned: Mapping[str, str],
        recorder: Recorder,
        **options: Any,  # noqa: ANN401 - checked by the consumer
    ) -> None:
        super().__init__(*topics, **options)
        self._collaborators = self._collaborators._replace(
            co_assigned=co_assigned, recorder=recorder
        )

    def pause_all(self) -> None:
        """Deliver no records until `resume_all`, also of partitions that are assigned later."""
        self._select(())

    def resume_all(self) -> None:
        """Deliver records again, except those of partitions that `pause` has paused."""
        self._select(None)

    @property
    def is_all_paused(self) -> bool:
        """Whether `pause_all` is in effect."""
        return self._rebalancer.selected is not None


def reads(handlers: Sequence[Handler], topic: str) -> bool:
    """Return whether one of the handlers reads this topic.

    Patterns do not match internal topics.
    """
    by_pattern = topic not in INTERNAL_TOPICS
    return any(
        topic in handler.topics or (by_pattern and handler.handles(topic)) for handler in handlers
    )


def retry_topics(handlers: Sequence[Handler]) -> dict[str, str]:
    """Return a mapping of source topics to their retry topics. Topics without one are left out."""
    return {
        topic: handler.handling.retry_topic
        for handler in handlers
        if handler.handling.retry_topic is not None
        for topic in handler.topics
    }


def subscription(handlers: Sequence[Handler]) -> tuple[Sequence[str], str | re.Pattern[str] | None]:
    """Return the topics that all handlers read together, or one pattern for all of them.

    If a handler has a pattern, topic names become part of one combined pattern.
    """
    topics = sorted({topic for handler in handlers for topic in handler.topics})
    patterns = [handler.pattern for handler in handlers if handler.pattern is not None]
    if not patterns:
        return topics, None
    if len(patterns) == 1 and not topics:
        return (), patterns[0]
    each = [*map(re.escape, topics), *map(with_flags, patterns)]
    return (), "|".join(f"(?:{expression})" for expression in each)
