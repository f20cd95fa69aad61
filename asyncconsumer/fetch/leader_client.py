"""A client for requests to the current leaders of partitions."""

from collections.abc import Collection, Iterable, Iterator
from math import inf
from random import Random
from typing import NamedTuple
from uuid import UUID

from asyncconsumer.aio.concurrency import in_chunks
from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import BrokerError
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.metadata import Metadata
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.types import Address, TopicPartition


class LeaderInfo(NamedTuple):
    """The leader of a partition, with the leader epoch and the topic id."""

    node_id: int
    address: Address
    leader_epoch: int
    topic_id: UUID | None


class LeaderClient:
    """A client that finds the leaders of partitions and connects to them.

    A leader marked as stale is looked up again before its next use. Callers retry with
    `retry_deadline`: they wait 50 ms to 1 s before each attempt, and give up after `patience_ms`.
    """

    def __init__(
        self, brokers: BrokerPool, cluster: Cluster, *, patience_ms: int, randomness: Random
    ) -> None:
        self._brokers = brokers
        self._cluster = cluster
        self._patience_ms = patience_ms
        self._randomness = randomness
        self._stale: set[TopicPartition] = set()

    @property
    def brokers(self) -> BrokerPool:
        """The connections to brokers."""
        return self._brokers

    @property
    def metadata(self) -> Metadata:
        """The cached cluster metadata."""
        return self._cluster.metadata

    @property
    def connection(self) -> ConnectionConfig:
        """The connection settings."""
        return self._brokers.config

    async def connect(
        self, tp: TopicPartition, traffic: Traffic, *, slot: int = 0
    ) -> tuple[BrokerConnection, LeaderInfo]:
        """Return a connection to a partition's leader, and its LeaderInfo. An error is not retried.

        For `slot` see `BrokerPool.connection`.
        """
        leader = await self.find(tp)
        return await self._brokers.connection(leader.address, traffic, slot=slot), leader

    async def connect_to(
        self, node_id: int, traffic: Traffic, *, slot: int
    ) -> BrokerConnection | None:
        """Return a connection to a broker by its id, or None if the id is unknown."""
        broker = self._cluster.metadata.brokers.get(node_id)
        if broker is None:
            return None
        return await self._brokers.connection(broker.address, traffic, slot=slot)

    async def find(self, tp: TopicPartition) -> LeaderInfo:
        """Return the leader of a partition. An error is not retried.

        Metadata is requested if the leader is unknown or marked as stale.
        """
        leader = (await self.find_all([tp]))[tp]
        if isinstance(leader, BrokerError):
            raise leader
        return leader

    async def find_all(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, LeaderInfo | BrokerError]:
        """Return the leader of each partition, or the partition's error.

        One metadata request covers all partitions whose leader is unknown or marked as stale.
        """
        metadata = self._cluster.metadata
        stale_topics = {
            tp.topic
            for tp in partitions
            if tp in self._stale
            or (topic := metadata.topics.get(tp.topic)) is None
            or topic.lacks(tp.partition)
        }
        if stale_topics:
            metadata = await self._cluster.refresh(stale_topics)
            self._stale = {tp for tp in self._stale if tp.topic not in stale_topics}
        leaders = in_chunks(self._leaders(metadata, partitions))
        return {tp: leader async for tp, leader in leaders}

    def _leaders(
        self, metadata: Metadata, partitions: Iterable[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, LeaderInfo | BrokerError]]:
        for tp in partitions:
            try:
                leader = metadata.leader(tp)
            except BrokerError as error:
                self.mark_stale(tp)
                yield tp, error
            else:
                node_id, address = leader.broker.node_id, leader.broker.address
                topic_id = metadata.topics[tp.topic].topic_id
                yield tp, LeaderInfo(node_id, address, leader.epoch, topic_id)

    async def partitions(self, topic: str) -> frozenset[TopicPartition]:
        """Return all partitions of a topic from fresh metadata.

        The result is empty if the topic does not exist.
        """
        metadata = await self._cluster.refresh([topic])
        error, numbers = metadata.topics[topic].error, metadata.topics[topic].partitions
        if error is not None and not error.retriable:
            raise error
        return frozenset(TopicPartition(topic, number) for number in numbers)

    def mark_stale(self, tp: TopicPartition) -> None:
        """Mark the leader of a partition as stale, so that it is looked up before its next use."""
        self._stale.add(tp)

    def mark_suspect(self, address: Address) -> None:
        """Mark a broker as suspect, so that other brokers are preferred for a while."""
        self._brokers.mark_suspect(address)

    def retry_deadline(self, max_ms: float = inf) -> RetryDeadline:
        """Return a new time limit for retries: `patience_ms`, or `max_ms` if that is shorter."""
        return RetryDeadline(min(self._patience_ms, max_ms), self._randomness)
