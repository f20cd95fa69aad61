"""Access to a partition's leader, wherever it is now."""

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
    """Where a partition is led."""

    node_id: int
    address: Address
    leader_epoch: int
    topic_id: UUID | None


class LeaderClient:
    """Finds leaders, connects to them, and tries again while that may help.

    A leader in doubt is asked for again. Whoever asks it waits between tries for 50 ms to 1 s, and
    tries nothing for longer than `patience_ms` without success: see `patience`.
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
        """What is known of the cluster now."""
        return self._cluster.metadata

    @property
    def connection(self) -> ConnectionConfig:
        """How brokers are reached."""
        return self._brokers.config

    async def connect(
        self, partition: TopicPartition, traffic: Traffic, *, lane: int = 0
    ) -> tuple[BrokerConnection, LeaderInfo]:
        """A connection to the leader; one try. For `lane` see `BrokerPool.connection`."""
        place = await self.place(partition)
        return await self._brokers.connection(place.address, traffic, lane=lane), place

    async def connect_to(
        self, node_id: int, traffic: Traffic, *, lane: int
    ) -> BrokerConnection | None:
        """A connection to a broker by its id; None if it is not known."""
        broker = self._cluster.metadata.brokers.get(node_id)
        if broker is None:
            return None
        return await self._brokers.connection(broker.address, traffic, lane=lane)

    async def place(self, partition: TopicPartition) -> LeaderInfo:
        """Where it is led; asked of the cluster if that is not known, or in doubt. One try."""
        place = (await self.places([partition]))[partition]
        if isinstance(place, BrokerError):
            raise place
        return place

    async def places(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, LeaderInfo | BrokerError]:
        """Where each is led, or why that is not known. One question for all that are in doubt."""
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
        """All that a topic has, asked of the cluster now; none if there is none, or not yet."""
        found = (await self._cluster.refresh([topic])).topics[topic]
        if found.error is not None and not found.error.retriable:
            raise found.error
        return frozenset(TopicPartition(topic, number) for number in found.partitions)

    def doubt(self, partition: TopicPartition) -> None:
        """Have the leader asked for anew next time: what we believed did not work."""
        self._stale.add(partition)

    def suspect(self, address: Address) -> None:
        """It owes an answer: others are asked first, for a while."""
        self._brokers.suspect(address)

    def patience(self, most_ms: float = inf) -> RetryDeadline:
        """For one thing that must not go wrong for ever; at most for `most_ms`."""
        return RetryDeadline(min(self._patience_ms, most_ms), self._randomness)
