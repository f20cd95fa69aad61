"""Requests to the current leader of a partition."""

from collections.abc import Collection, Iterable, Iterator
from math import inf
from random import Random
from typing import NamedTuple
from uuid import UUID

from asyncconsumer.aio.long_work import in_pieces
from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import BrokerError
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.metadata import Metadata
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.types import Address, TopicPartition


class LeaderInfo(NamedTuple):
    """The leader of a partition, its address, its epoch and the topic id."""

    node_id: int
    address: Address
    leader_epoch: int
    topic_id: UUID | None


class LeaderClient:
    """A client that finds leaders, connects to them, and retries.

    A leader marked as stale is looked up again before its next use. Retries wait 50 ms to 1 s, and
    stop after `patience_ms` without success; see `patience`.
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
        """Return the connections to brokers."""
        return self._brokers

    @property
    def metadata(self) -> Metadata:
        """Return the cached cluster metadata."""
        return self._cluster.metadata

    @property
    def connection(self) -> ConnectionConfig:
        """Return the connection settings."""
        return self._brokers.config

    async def connect(
        self, partition: TopicPartition, traffic: Traffic, *, lane: int = 0
    ) -> tuple[BrokerConnection, LeaderInfo]:
        """Return a connection to the leader, without retries.

        For `lane` see `BrokerPool.connection`.
        """
        place = await self.place(partition)
        return await self._brokers.connection(place.address, traffic, lane=lane), place

    async def connect_to(
        self, node_id: int, traffic: Traffic, *, lane: int
    ) -> BrokerConnection | None:
        """Return a connection to a broker by its id, or None if the id is unknown."""
        broker = self._cluster.metadata.brokers.get(node_id)
        if broker is None:
            return None
        return await self._brokers.connection(broker.address, traffic, lane=lane)

    async def place(self, partition: TopicPartition) -> LeaderInfo:
        """Return the leader of a partition, without retries.

        The cluster is asked if the leader is unknown or marked as stale.
        """
        place = (await self.places([partition]))[partition]
        if isinstance(place, BrokerError):
            raise place
        return place

    async def places(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, LeaderInfo | BrokerError]:
        """Return the leader of each partition, or the error.

        One metadata request covers all unknown or stale partitions.
        """
        metadata = self._cluster.metadata
        in_doubt = {
            one.topic
            for one in partitions
            if one in self._stale
            or (topic := metadata.topics.get(one.topic)) is None
            or topic.lacks(one.partition)
        }
        if in_doubt:
            metadata = await self._cluster.refresh(in_doubt)
            self._stale = {one for one in self._stale if one.topic not in in_doubt}
        found = in_pieces(self._each_place(metadata, partitions))
        return {one: place async for one, place in found}

    def _each_place(
        self, metadata: Metadata, partitions: Iterable[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, LeaderInfo | BrokerError]]:
        for one in partitions:
            try:
                leader = metadata.leader(one)
            except BrokerError as error:
                self.doubt(one)
                yield one, error
            else:
                node_id, address = leader.broker.node_id, leader.broker.address
                topic_id = metadata.topics[one.topic].topic_id
                yield one, LeaderInfo(node_id, address, leader.epoch, topic_id)

    async def partitions(self, topic: str) -> frozenset[TopicPartition]:
        """Return all partitions of a topic from fresh metadata.

        The result is empty if the topic does not exist, or not yet.
        """
        found = (await self._cluster.refresh([topic])).topics[topic]
        if found.error is not None and not found.error.retriable:
            raise found.error
        return frozenset(TopicPartition(topic, number) for number in found.partitions)

    def doubt(self, partition: TopicPartition) -> None:
        """Mark a leader as stale, so that it is looked up again before its next use."""
        self._stale.add(partition)

    def suspect(self, address: Address) -> None:
        """Mark a broker as suspect, so that other brokers are preferred for a while."""
        self._brokers.suspect(address)

    def patience(self, most_ms: float = inf) -> RetryDeadline:
        """Return a new retry deadline, at most `most_ms`."""
        return RetryDeadline(min(self._patience_ms, most_ms), self._randomness)
