"""What the handlers of an app read together."""

import re
from collections.abc import Sequence

from asyncconsumer.group.subscription import with_flags
from asyncconsumer.group.zookeeper.filters import INTERNAL_TOPICS
from asyncconsumer.handlers.handler import Handler


def reads(handlers: Sequence[Handler], topic: str) -> bool:
    """Whether a handler is for this topic. No pattern matches Kafka's own topics."""
    by_pattern = topic not in INTERNAL_TOPICS
    return any(topic in one.topics or (by_pattern and one.handles(topic)) for one in handlers)


def companions(handlers: Sequence[Handler]) -> dict[str, str]:
    """For each topic the one where its records wait before they are tried again."""
    return {
        topic: one.handling.retry_topic
        for one in handlers
        if one.handling.retry_topic is not None
        for topic in one.topics
    }


def subscription(handlers: Sequence[Handler]) -> tuple[Sequence[str], str | re.Pattern[str] | None]:
    """What all of them read together; where one has a pattern, names are made part of one."""
    topics = sorted({topic for one in handlers for topic in one.topics})
    patterns = [one.pattern for one in handlers if one.pattern is not None]
    if not patterns:
        return topics, None
    if len(patterns) == 1 and not topics:
        return (), patterns[0]
    each = [*map(re.escape, topics), *map(with_flags, patterns)]
    return (), "|".join(f"(?:{one})" for one in each)
