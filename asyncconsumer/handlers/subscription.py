"""The subscription of an app, combined from its handlers."""

import re
from collections.abc import Sequence

from asyncconsumer.group.subscription import with_flags
from asyncconsumer.group.zookeeper.filters import INTERNAL_TOPICS
from asyncconsumer.handlers.handler import Handler


def reads(handlers: Sequence[Handler], topic: str) -> bool:
    """Return whether a handler reads this topic. Patterns do not match internal topics."""
    by_pattern = topic not in INTERNAL_TOPICS
    return any(topic in one.topics or (by_pattern and one.handles(topic)) for one in handlers)


def companions(handlers: Sequence[Handler]) -> dict[str, str]:
    """Return the retry topic of each source topic that has one."""
    return {
        topic: one.handling.retry_topic
        for one in handlers
        if one.handling.retry_topic is not None
        for topic in one.topics
    }


def subscription(handlers: Sequence[Handler]) -> tuple[Sequence[str], str | re.Pattern[str] | None]:
    """Return topics or a pattern that all handlers read together.

    If a handler has a pattern, topic names become part of one combined pattern.
    """
    topics = sorted({topic for one in handlers for topic in one.topics})
    patterns = [one.pattern for one in handlers if one.pattern is not None]
    if not patterns:
        return topics, None
    if len(patterns) == 1 and not topics:
        return (), patterns[0]
    each = [*map(re.escape, topics), *map(with_flags, patterns)]
    return (), "|".join(f"(?:{one})" for one in each)
