"""The producer for dead letters, retries and replays."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from random import Random

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import BrokerError, ConsumerError, UnknownTopicOrPartition
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.metadata import Topic
from asyncconsumer.net.partition_writer import Outcome, PartitionWriter, ProducerRecord
from asyncconsumer.net.pool import BrokerOpener, BrokerPool
from asyncconsumer.protocol.messages import MetadataRequest
from asyncconsumer.records.decoding import murmur2
from asyncconsumer.types import TopicPartition


class RecordWriter(AsyncResource):
    """An idempotent producer, within its ``async with`` block. One task at a time may `send`.

    Failed records are not retried here. The caller sends the same objects again.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        randomness: Random,
        opener: BrokerOpener = open_connection,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._brokers = BrokerPool(config, randomness=randomness, opener=opener)
        self._cluster = Cluster(self._brokers, randomness=randomness)
        self._randomness = randomness
        self._now_ms = now_ms or _now_ms
        self._writers: dict[TopicPartition, PartitionWriter] = {}
        self._stale: set[str] = set()  # topics whose leaders may have changed

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._brokers)
        await stack.enter_async_context(self._cluster)

    async def send(self, records: Collection[ProducerRecord]) -> dict[ProducerRecord, Outcome]:
        """Write records, and return the offset or the error of each.

        A record with an offset is on all in-sync replicas.
        """
        outcomes: dict[ProducerRecord, Outcome] = {}
        by_partition: dict[TopicPartition, list[ProducerRecord]] = {}
        try:
            await self._refresh({record.topic for record in records})
        except ConsumerError as error:
            return dict.fromkeys(records, error)
        for record in records:
            try:
                by_partition.setdefault(self._partition_for(record), []).append(record)
            except ConsumerError as error:
                outcomes[record] = error
        async with asyncio.TaskGroup() as group:
            for tp, batch in by_partition.items():
                writing = self._writer(tp).write(batch, outcomes)
                start_task(group, writing, f"produce to {tp}")
        self._stale |= {
            record.topic for record in records if isinstance(outcomes[record], ConsumerError)
        }
        return outcomes

    async def find_topic(self, topic: str) -> None:
        """Raise an error if a topic does not exist.

        A broker with automatic topic creation creates it.
        """
        self._stale.add(topic)
        await self._refresh({topic})
        self._topic(topic)

    def _writer(self, tp: TopicPartition) -> PartitionWriter:
        if tp not in self._writers:
            self._writers[tp] = PartitionWriter(tp, self._brokers, self._cluster, self._now_ms)
        return self._writers[tp]

    async def _refresh(self, topics: set[str]) -> None:
        """Refresh the metadata of topics that are unknown or stale."""
        known = self._cluster.metadata.topics
        stale = {
            topic
            for topic in topics
            if topic in self._stale or topic not in known or known[topic].error is not None
        }
        if not stale:
            return
        await self._cluster.refresh(stale)
        if missing := [topic for topic in sorted(stale) if self._is_missing(topic)]:
            await self._cluster.ask_any(MetadataRequest(missing, create=True))
            await self._cluster.refresh(missing)
        self._stale -= stale

    def _is_missing(self, topic: str) -> bool:
        try:
            self._topic(topic)
        except BrokerError as error:
            return isinstance(error, UnknownTopicOrPartition)
        return False

    def _topic(self, name: str) -> Topic:
        topic = self._cluster.metadata.topics.get(name)
        if topic is None or (topic.error is None and not topic.partitions):
            raise UnknownTopicOrPartition(f"topic {name!r}")
        if topic.error is not None:
            raise BrokerError.from_code(topic.error.code, topic.error.about)
        return topic

    def _partition_for(self, record: ProducerRecord) -> TopicPartition:
        topic = self._topic(record.topic)
        if record.partition is not None:
            return TopicPartition(record.topic, record.partition)
        candidates = (tp for tp, writer in self._writers.items() if writer.may_have_written(record))
        number = self._choose_partition(topic, record.key)
        return next(candidates, TopicPartition(record.topic, number))

    def _choose_partition(self, topic: Topic, key: bytes | None) -> int:
        """Return a partition by the key, as Java's producer does.

        Without a key, return a random partition that has a leader.
        """
        numbers = sorted(topic.partitions)
        if key is not None:
            hashed: int = murmur2(key) & 0x7FFFFFFF
            return numbers[hashed % len(numbers)]
        brokers = self._cluster.metadata.brokers
        led = [number for number in numbers if topic.partitions[number].leader in brokers]
        return self._randomness.choice(led or numbers)


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
