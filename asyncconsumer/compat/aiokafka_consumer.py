"""The `Consumer` that `AIOKafkaConsumer` uses, and the subscription to apply to it."""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from asyncconsumer import types
from asyncconsumer.compat.aiokafka_errors import translate
from asyncconsumer.compat.aiokafka_record import ConsumerRecord
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.stream import DeliveryPolicy
from asyncconsumer.streams.batched import BatchedStream


class RecordConsumer(Consumer[Any, Any]):
    """A `Consumer` that delivers aiokafka's records, and raises aiokafka's errors in loops."""

    def _adapt(self, stream: BatchedStream, policy: DeliveryPolicy) -> DeliveryPolicy:
        stream.translate = translate
        return policy._replace(message_type=ConsumerRecord, fail=None)

    @property
    def is_subscribed(self) -> bool:
        """Whether there is a subscription or a manual assignment."""
        return self._current is not None

    @property
    def is_in_listener(self) -> bool:
        """Whether the current code was called by a rebalance listener."""
        return self._current is not None and self._current.runner.is_in_listener

    @property
    def owned(self) -> Collection[types.TopicPartition]:
        """The partitions that may be committed. They include partitions that are being revoked."""
        return self.assignment | self._rebalancer.releasing.keys() if self._current else ()

    def acknowledge(self) -> None:
        """Count all delivered records as consumed."""
        if self._current is not None:
            for stream in self._rebalancer.streams.all():
                if isinstance(stream, BatchedStream) and stream.is_unacknowledged:
                    stream.acknowledge()

    def known_partitions(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic in the cached metadata, or None."""
        known = self._resources.kafka.cluster.metadata.topics.get(topic)
        return set(known.partitions) if known is not None and known.partitions else None


class WantedSubscription(NamedTuple):
    """The topics, the pattern or the partitions of the user's last request."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[types.TopicPartition] | None = None

    async def apply(self, consumer: Consumer[Any, Any]) -> None:
        """Change the subscription of `consumer` to this one."""
        if self.partitions is not None:
            await consumer.assign(self.partitions)
        elif self.topics or self.pattern is not None:
            await consumer.subscribe(*self.topics, pattern=self.pattern)
        else:
            await consumer.unsubscribe()
