"""Access to a partition's leader, wherever it is now."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar
from uuid import UUID

from aiokafka.protocol.api import Request, Response

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import BrokerError, ConsumerError
from asyncconsumer.model import Address, TopicPartition
from asyncconsumer.net.brokers import Brokers, Traffic
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connection import Connection
from asyncconsumer.tasks.patience import Patience

T = TypeVar("T")


class Place(NamedTuple):
    """Where a partition is led."""

    node_id: int
    address: Address
    leader_epoch: int
    topic_id: UUID | None


class Leaders:
    """Finds leaders, connects to them, and tries again while that may help.

    When something fails, the leader is asked for anew and the request sent again, after waits that
    grow from 50 ms to 1 s. Nothing is tried for longer than `patience_ms` without success.
    """

    def __init__(
        self, brokers: Brokers, cluster: Cluster, *, patience_ms: int, randomness: Random
    ) -> None:
        self._brokers = brokers
        self._cluster = cluster
        self._patience_ms = patience_ms
        self._randomness = randomness
        self._stale: set[TopicPartition] = set()

    @property
    def connection(self) -> ConnectionConfig:
        """How brokers are reached."""
        return self._brokers.config

    async def connect(
        self, partition: TopicPartition, traffic: Traffic, *, lane: int = 0
    ) -> tuple[Connection, Place]:
        """A connection to the leader; one try. For `lane` see `Brokers.connection`."""
        place = await self.place(partition)
        return await self._brokers.connection(place.address, traffic, lane=lane), place

    async def connect_to(self, node_id: int, traffic: Traffic, *, lane: int) -> Connection | None:
        """A connection to a broker by its id; None if it is not known."""
        broker = self._cluster.metadata.brokers.get(node_id)
        if broker is None:
            return None
        return await self._brokers.connection(broker.address, traffic, lane=lane)

    async def place(self, partition: TopicPartition) -> Place:
        """Where it is led; asked of the cluster if that is not known, or in doubt. One try."""
        metadata = self._cluster.metadata
        if partition in self._stale or partition.topic not in metadata.topics:
            metadata = await self._cluster.refresh([partition.topic])
            self._stale = {one for one in self._stale if one.topic != partition.topic}
        try:
            leader = metadata.leader(partition)
        except BrokerError:
            self.doubt(partition)
            raise
        topic_id = metadata.topics[partition.topic].topic_id
        return Place(leader.broker.node_id, leader.broker.address, leader.epoch, topic_id)

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

    def patience(self) -> Patience:
        """For one thing that must not go wrong for ever."""
        return Patience(self._patience_ms, self._randomness)

    async def request(
        self, partition: TopicPartition, message: Request, read: Callable[[Response], T]
    ) -> T:
        """Ask the leader something small; `read` makes a value, or a broker's error, of it."""
        patience = self.patience()
        while True:
            try:
                connection, _ = await self.connect(partition, Traffic.CONTROL)
                return read(await connection.request(message))
            except ConsumerError as error:
                self.doubt(partition)
                await patience.bear(error)
