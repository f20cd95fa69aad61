"""The subscription of an app, combined from its handlers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.subscription import TransactionalStore
from asyncconsumer.errors import ConfigError
from asyncconsumer.group.subscription import INTERNAL_TOPICS, with_flags
from asyncconsumer.handlers.handler import Handler
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.protocol.messages import MetadataRequest
from asyncconsumer.types import TopicPartition


class AppConsumer(Consumer[Any, Any]):
    """The consumer of an app. It reads retry topics together with their source topics."""

    def __init__(
        self,
        *topics: str,
        co_assigned: Mapping[str, Sequence[str]],
        recorder: Recorder,
        in_transactions: TransactionalStore | None = None,
        **options: Any,  # noqa: ANN401 - checked by the consumer
    ) -> None:
        super().__init__(*topics, **options)
        self._collaborators = self._collaborators._replace(
            co_assigned=co_assigned, recorder=recorder, in_transactions=in_transactions
        )

    def pause_topics(self, *topics: str) -> None:
        """Deliver no records of these topics, or of all topics if none is named.

        This includes partitions that are assigned later.
        """
        if topics:
            self._rebalancer.pause_topics(self.paused_topics | set(topics))
        else:
            self._select(())

    def resume_topics(self, *topics: str) -> None:
        """Deliver records of these topics again, or of all topics if none is named.

        Partitions that `pause` has paused remain paused.
        """
        self._rebalancer.pause_topics(self.paused_topics - set(topics) if topics else ())
        if not topics:
            self._select(None)

    @property
    def paused_topics(self) -> frozenset[str]:
        """The topics that are paused by name."""
        return self._rebalancer.paused_topics

    async def request_creation(self, topics: Iterable[str]) -> None:
        """Request metadata of topics. Brokers with automatic topic creation create missing ones."""
        if names := sorted(topics):
            await self._resources.kafka.cluster.ask_any(MetadataRequest(names, create=True))

    def _user_seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._collaborators.in_transactions is not None:
            raise ConfigError(
                "an app with `exactly_once` cannot seek, because results of processed records wait "
                "for their transaction. Stop the app, and reset the offsets of its group"
            )
        super()._user_seek(offsets)

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        """Read a partition again from an offset, because its log was truncated."""
        super()._user_seek({partition: offset})

    @property
    def is_all_paused(self) -> bool:
        """Whether a `pause_topics` without topics is in effect."""
        return self._rebalancer.selected is not None


def reads(handlers: Sequence[Handler], topic: str) -> bool:
    """Return whether one of the handlers reads this topic.

    Patterns do not match internal topics.
    """
    by_pattern = topic not in INTERNAL_TOPICS
    return any(
        topic in handler.topics or (by_pattern and handler.handles(topic)) for handler in handlers
    )


def retry_topics(handlers: Sequence[Handler]) -> dict[str, tuple[str, ...]]:
    """Return the retry topics of each source topic. Topics without retry topics are left out."""
    return {
        topic: handler.handling.retry_topics
        for handler in handlers
        if handler.handling.retry_topics
        for topic in handler.topics
    }


def subscription(handlers: Sequence[Handler]) -> tuple[Sequence[str], str | re.Pattern[str] | None]:
    """Return the topics and the pattern to subscribe to, for all handlers together.

    If a handler has a pattern, there are no topics. Their names become part of the pattern.
    """
    topics = sorted({topic for handler in handlers for topic in handler.topics})
    patterns = [handler.pattern for handler in handlers if handler.pattern is not None]
    if not patterns:
        return topics, None
    if len(patterns) == 1 and not topics:
        return (), patterns[0]
    each = [*map(re.escape, topics), *map(with_flags, patterns)]
    return (), "|".join(f"(?:{expression})" for expression in each)
