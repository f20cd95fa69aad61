"""The check that the retry topic of a handler exists and has enough partitions."""

import asyncio
from typing import Final

from asyncconsumer.aio.wait import wait_until
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.handler import Handler

_SECONDS_TO_APPEAR: Final = 5.0  # the metadata of a new topic takes time to reach all brokers
_POLL_SECONDS: Final = 0.2


async def check_topics(handler: Handler, consumer: Consumer) -> None:
    """Raise ConfigError if the retry topic is missing or has too few partitions.

    The `DeadLetterProducer` checks its topic itself, in the background.
    """
    how = handler.handling
    if how.retry_topic is not None:
        [source] = handler.topics
        await _check_retry_topic(handler.name, source, how.retry_topic, consumer)


async def _check_retry_topic(name: str, source: str, waiting: str, consumer: Consumer) -> None:
    now = asyncio.get_running_loop().time
    deadline = now() + _SECONDS_TO_APPEAR

    async def is_usable() -> bool:
        wrong = await _problem(source, waiting, consumer)
        if wrong is not None and now() >= deadline:
            raise ConfigError(f"handler {name}: {wrong}")
        return wrong is None

    await wait_until(is_usable, every=_POLL_SECONDS)


async def _problem(source: str, waiting: str, consumer: Consumer) -> str | None:
    needed = max(1, len(await consumer.partitions_for(source)))
    if not (count := len(await consumer.partitions_for(waiting))):
        return f"its retry topic {waiting!r} does not exist: create it with {needed} partitions"
    if count < needed:
        return (
            f"its retry topic {waiting!r} has {count} partitions, but {source!r} has {needed}. "
            "Add partitions: a failed record waits in the partition with the same number"
        )
    return None
