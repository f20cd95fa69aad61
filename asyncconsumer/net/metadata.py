"""What a cluster looks like at one moment, as values that do not change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Self
from uuid import UUID

from asyncconsumer.errors import (
    BrokerError,
    LeaderNotAvailable,
    MalformedResponse,
    UnknownTopicOrPartition,
)
from asyncconsumer.model import Address, TopicPartition
from asyncconsumer.wire.tables import Uuid

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker."""

    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. `leader` is a node id, or NO_LEADER; `epoch` counts the leaders so far."""

    leader: int
    epoch: int = -1  # unknown to brokers before Kafka 2.1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic, or the error that the broker answered in its place."""

    name: str
    topic_id: UUID | None = None  # None from brokers before Kafka 2.8
    partitions: Mapping[int, Partition] = field(default_factory=dict)
    error: BrokerError | None = None

    def lacks(self, partition: int) -> bool:
        """Whether the topic is there, and has no such partition."""
        return self.error is None and partition not in self.partitions


@dataclass(frozen=True, slots=True)
class Leader:
    """Whom to ask about a partition."""

    broker: Broker
    epoch: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """Brokers and topics as one answer told them, and what earlier ones told of other topics."""

    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controller: int = -1
    topics: Mapping[str, Topic] = field(default_factory=dict)

    def leader(self, partition: TopicPartition) -> Leader:
        """The leader of a partition, or the BrokerError that says why there is none known."""
        topic = self.topics.get(partition.topic)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {partition.topic!r}, which was never asked about")
        if topic.error is not None:
            raise BrokerError.of(topic.error.code, topic.error.about)
        found = topic.partitions.get(partition.partition)
        if found is None:
            raise UnknownTopicOrPartition(f"partition {partition}")
        if (broker := self.brokers.get(found.leader)) is None:
            raise LeaderNotAvailable(f"partition {partition}")
        return Leader(broker, found.epoch)

    def has_leader(self, partition: TopicPartition) -> bool:
        """Whether `leader` tells one."""
        try:
            return bool(self.leader(partition))
        except BrokerError:
            return False

    def only(self, topics: Iterable[str]) -> Self:
        """The same without topics that nobody asked for: they would be kept for ever."""
        kept = {name: self.topics[name] for name in topics if name in self.topics}
        return replace(self, topics=MappingProxyType(kept))

    def updated(self, newer: Self) -> Self:
        """What `newer` tells, without unlearning: epochs that are older are not taken over."""
        topics = {name: self._newest(topic) for name, topic in newer.topics.items()}
        return replace(newer, topics=MappingProxyType({**self.topics, **topics}))

    def _newest(self, told: Topic) -> Topic:
        known = self.topics.get(told.name)
        if known is None or known.topic_id != told.topic_id:  # of another id: it was re-created
            return told
        kept = {
            number: partition
            for number, partition in known.partitions.items()
            if number in told.partitions and told.partitions[number].epoch < partition.epoch
        }
        return replace(told, partitions=MappingProxyType({**told.partitions, **kept}))


def read_metadata(answer: Mapping[str, Any], version: int) -> Metadata:
    """The Metadata of a decoded answer; what makes no sense is a MalformedResponse."""
    brokers = {row["node_id"]: _broker(row, version) for row in answer["brokers"] or ()}
    topics = {row["name"]: _topic(row) for row in answer["topics"] or () if row["name"]}
    return Metadata(MappingProxyType(brokers), answer["controller_id"], MappingProxyType(topics))


def _broker(row: Mapping[str, Any], version: int) -> Broker:
    address = Address(row["host"], row["port"])
    if not address.is_possible:
        raise MalformedResponse("Metadata", version, 0, f"a broker at {tuple(address)}")
    return Broker(row["node_id"], address, row["rack"])


def _topic(row: Mapping[str, Any]) -> Topic:
    name, code = row["name"], row["error_code"]
    topic_id = row.get("topic_id", Uuid.NONE)
    return Topic(
        name,
        None if topic_id == Uuid.NONE else topic_id,
        MappingProxyType({one["partition"]: _partition(one) for one in row["partitions"] or ()}),
        BrokerError.of(code, f"topic {name!r}") if code else None,
    )


def _partition(row: Mapping[str, Any]) -> Partition:
    # an error here is a leader that is gone, or a replica that is: the leader field tells
    return Partition(
        row["leader"], row.get("leader_epoch", -1), _numbers(row["replicas"]), _numbers(row["isr"])
    )


def _numbers(values: Iterable[int] | None) -> tuple[int, ...]:
    return tuple(values or ())
