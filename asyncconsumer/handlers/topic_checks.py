"""The check of the retry topic of a handler: it must exist and have enough partitions."""

import asyncio
from typing import Final

from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.handler import Handler

_SECONDS_TO_APPEAR: Final = 5.0  # the metadata of a new topic takes time to reach all brokers
_SECONDS_BETWEEN_LOOKS: Final = 0.2


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
    patience = now() + _SECONDS_TO_APPEAR
    while (wrong := await _wrong_with(source, waiting, consumer)) is not None:
        if now() >= patience:
            raise ConfigError(f"handler {name}: {wrong}")
        await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)


async def _wrong_with(source: str, waiting: str, consumer: Consumer) -> str | None:
    needed = max(1, len(await consumer.partitions_for(source)))
    if not (there := len(await consumer.partitions_for(waiting))):
        return f"its retry topic {waiting!r} is not there: create it, with {needed} partitions"
    if there < needed:
        return (
            f"its retry topic {waiting!r} has {there} partitions, and {source!r} has {needed}: "
            "give it as many, for what failed waits in the partition of the same number"
        )
    return None
