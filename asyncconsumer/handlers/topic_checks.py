"""The topics that the handlers of an app write to: their creation, and the check that they exist.

Without the check, a missing dead letter topic would be noticed only at the first failed record.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from asyncconsumer.admin.admin import Admin
from asyncconsumer.aio.wait import wait_until
from asyncconsumer.errors import ConfigError, TopicAlreadyExists
from asyncconsumer.handlers.handler import Handler
from asyncconsumer.handlers.publishing import Publish
from asyncconsumer.handlers.subscription import AppConsumer

_SECONDS_TO_APPEAR: Final = 5.0  # the metadata of a new topic takes time to reach all brokers
_POLL_SECONDS: Final = 0.2
_DEFAULT: Final = -1  # the number of partitions that the brokers are configured with


class NeededTopic(NamedTuple):
    """A topic that a handler writes to. It needs as many partitions as `source`, if that is set."""

    name: str
    handler: str
    role: str
    source: str | None = None


async def create_topics(handlers: Sequence[Handler], admin: Admin) -> None:
    """Create the missing topics that handlers name, to read from them or to write to them.

    A retry topic gets as many partitions as its source topic, even if it exists with fewer. Other
    topics get the brokers' default number of partitions.
    """
    existing = set(await admin.topics())
    sources = {topic for handler in handlers for topic in handler.topics}
    needed = list(_needed_topics(handlers))
    for name in sorted(sources | {topic.name for topic in needed if topic.source is None}):
        if name not in existing:
            await _create(admin, name, _DEFAULT)
    for topic in needed:
        if topic.source is None:
            continue
        count = await _partition_count(admin, topic.source)
        if topic.name not in existing:
            await _create(admin, topic.name, count)
        elif await _partition_count(admin, topic.name) < count:
            await admin.add_partitions(topic.name, count)


async def _create(admin: Admin, name: str, partitions: int) -> None:
    with suppress(TopicAlreadyExists):  # another member creates it, too
        await admin.create_topic(name, partitions=partitions)


async def _partition_count(admin: Admin, name: str) -> int:
    [topic] = await admin.describe_topics([name])
    return len(topic.partitions)


async def check_topics(handlers: Sequence[Handler], consumer: AppConsumer) -> None:
    """Raise ConfigError if a topic that a handler writes to is missing or has too few partitions.

    Brokers with automatic topic creation create missing topics, except retry topics.
    """
    needed = list(_needed_topics(handlers))
    now = asyncio.get_running_loop().time
    deadline = now() + _SECONDS_TO_APPEAR

    async def are_usable() -> bool:
        problems = [each for topic in needed if (each := await _problem(topic, consumer))]
        if problems and now() >= deadline:
            raise ConfigError(". ".join(problems))
        return not problems

    if not await are_usable():
        await consumer.request_creation(topic.name for topic in needed if topic.source is None)
        await wait_until(are_usable, every=_POLL_SECONDS)


def _needed_topics(handlers: Iterable[Handler]) -> Iterator[NeededTopic]:
    for handler in handlers:
        name, options = handler.name, handler.handling
        for topic in options.retry_topics:
            [source] = handler.topics
            yield NeededTopic(topic, name, "retry topic", source)
        if options.dead_letter_topic is not None:
            yield NeededTopic(options.dead_letter_topic, name, "dead letter topic")
        if isinstance(options.publish, Publish) and options.publish.topic is not None:
            yield NeededTopic(options.publish.topic, name, "topic of results")


async def _problem(topic: NeededTopic, consumer: AppConsumer) -> str | None:
    """Return the reason why a topic cannot be used, or None if it can."""
    count = len(await consumer.partitions_for(topic.name))
    needed = 1
    if topic.source is not None:
        needed = max(1, len(await consumer.partitions_for(topic.source)))
    if count >= needed:
        return None
    topic_text = f"handler {topic.handler}: its {topic.role} {topic.name!r}"
    alternative = (
        "let the app do it with `asyncconsumer run --create-topics` or `create_topics=True`"
    )
    if not count:
        size = "" if topic.source is None else f" with {needed} partitions"
        return f"{topic_text} does not exist. Create it{size}, or {alternative}"
    return (
        f"{topic_text} has {count} partitions, but {topic.source!r} has {needed}. Add partitions, "
        f"or {alternative}. A failed record waits in the partition with the same number"
    )
