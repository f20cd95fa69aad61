"""Immutable snapshots of cluster metadata."""

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple, Self
from uuid import UUID

from asyncconsumer.errors import BrokerError, LeaderNotAvailable, UnknownTopicOrPartition
from asyncconsumer.types import Address, TopicPartition

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker with its node id, address and rack."""

    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition in metadata.

    `leader` is a node id or `NO_LEADER`. `epoch` is the leader epoch.
    """

    leader: int
    epoch: int = -1  # unknown to brokers before Kafka 2.1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


class LeaderMapping(ABC, Mapping[int, Partition]):
    """A mapping of partition numbers to partitions, with a faster access to leaders.

    `leader` returns the leader and its epoch, without decoding the whole partition.
    """

    __slots__ = ()

    @abstractmethod
    def leader(self, number: int) -> tuple[int, int] | None:
        """Return the leader's node id (or `NO_LEADER`) and leader epoch.

        Return None if there is no partition with this number.
        """


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, or the error that the broker returned for it."""

    name: str
    topic_id: UUID | None = None  # None from brokers before Kafka 2.8
    partitions: dict[int, Partition] | LeaderMapping = field(default_factory=dict)
    error: BrokerError | None = None

    def leader(self, partition: int) -> tuple[int, int] | None:
        """Return the leader's node id (or `NO_LEADER`) and leader epoch.

        Return None if there is no partition with this number.
        """
        partitions = self.partitions
        if not isinstance(partitions, dict):
            return partitions.leader(partition)
        leader = partitions.get(partition)
        return None if leader is None else (leader.leader, leader.epoch)

    def lacks(self, partition: int) -> bool:
        """Return whether the topic exists and has no partition with this number."""
        return self.error is None and partition not in self.partitions


class Leader(NamedTuple):
    """The leader of a partition: its broker and leader epoch."""

    broker: Broker
    epoch: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """The brokers and topics in the last response, with other topics from earlier responses."""

    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controller: int = -1
    topics: Mapping[str, Topic] = field(default_factory=dict)

    def leader(self, partition: TopicPartition) -> Leader:
        """Return the leader of a partition. Raise a `BrokerError` if it has none."""
        topic = self.topics.get(partition.topic)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {partition.topic!r}, which was never requested")
        if topic.error is not None:
            raise BrokerError.from_code(topic.error.code, topic.error.about)
        leader = topic.leader(partition.partition)
        if leader is None:
            raise UnknownTopicOrPartition(f"partition {partition}")
        node_id, epoch = leader
        if (broker := self.brokers.get(node_id)) is None:
            raise LeaderNotAvailable(f"partition {partition}")
        return Leader(broker, epoch)

    def has_leader(self, partition: TopicPartition) -> bool:
        """Return whether the leader of a partition is known."""
        return self.find_leader(partition) is not None

    def find_leader(self, partition: TopicPartition) -> tuple[Broker, int] | None:
        """Return the leader of a partition, or None. This is faster than `leader`."""
        topic = self.topics.get(partition[0])
        if topic is None or topic.error is not None:
            return None
        partitions = topic.partitions
        if isinstance(partitions, dict):
            leader = topic.leader(partition[1])
        else:
            leader = partitions.leader(partition[1])
        if leader is None:
            return None
        broker = self.brokers.get(leader[0])
        return None if broker is None else (broker, leader[1])

    def updated(self, newer: Self, forgotten: Container[str] = ()) -> Self:
        """Return `newer`, extended by the topics that are only in this older metadata.

        Topics in `forgotten` are left out.
        """
        others = {name: topic for name, topic in self.topics.items() if name not in forgotten}
        return replace(newer, topics=MappingProxyType({**others, **newer.topics}))
