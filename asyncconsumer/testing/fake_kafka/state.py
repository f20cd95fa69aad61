"""The cluster state that brokers know: topics, partitions, leaders and brokers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.fake_kafka.log import Log
from asyncconsumer.types import Address, TopicPartition


@dataclass(slots=True, eq=False)
class Partition:
    """A partition as a broker knows it. `leader` is a node id, or -1 without a leader."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    epoch: int = 0
    log: Log = field(default_factory=Log)
    watchers: dict[Callable[[], None], None] = field(default_factory=dict)

    def copy(self) -> "Partition":
        """Return a copy of the partition and its log, without watchers."""
        return Partition(
            self.number, self.leader, self.replicas, self.isr, self.epoch, self.log.copy()
        )

    def led_by(self, leader: int) -> None:
        """Make the broker with the id `leader` the leader, or no broker with -1.

        Start a new leader epoch.
        """
        self.leader = leader
        self.epoch += 1
        if leader >= 0:
            self.log.begin_epoch(self.epoch)

    def changed(self) -> None:
        """Call all `watchers`: the fetches that wait for this partition."""
        for watcher in list(self.watchers):
            watcher()


@dataclass(slots=True, eq=False)
class Topic:
    """A topic. `incarnation` counts how often it was created."""

    name: str
    topic_id: UUID
    incarnation: int
    partitions: list[Partition]


class BrokerEndpoint(NamedTuple):
    """The address of a broker."""

    node_id: int
    address: Address
    rack: str | None


class View:
    """The cluster state that brokers use. A stale broker uses a copy, which is not updated."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}  # by topic id
        self.endpoints: dict[int, BrokerEndpoint] = {}  # of live brokers

    def copy(self) -> "View":
        """Return a copy, which later changes of this state do not affect."""
        other = View()
        other.topics = {
            name: Topic(
                name, topic.topic_id, topic.incarnation, [p.copy() for p in topic.partitions]
            )
            for name, topic in self.topics.items()
        }
        other.names, other.endpoints = dict(self.names), dict(self.endpoints)
        return other

    def add(self, topic: Topic) -> None:
        """Add a topic."""
        self.topics[topic.name] = topic
        self.names[topic.topic_id.bytes] = topic.name

    def remove(self, name: str) -> Topic:
        """Remove a topic and return it. Raise ConfigError if it does not exist."""
        topic = self.topic(name)
        del self.topics[name], self.names[topic.topic_id.bytes]
        return topic

    def changed(self) -> None:
        """Call the watchers of all partitions: the fetches that wait for records."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.changed()

    def topic(self, name: str) -> Topic:
        """Return a topic by its name. Raise ConfigError if it does not exist."""
        try:
            return self.topics[name]
        except KeyError:
            known = ", ".join(self.topics) or "none"
            raise ConfigError(
                f"the fake cluster has no topic {name!r}: its topics are {known}"
            ) from None

    def partition(self, tp: TopicPartition) -> Partition:
        """Return a partition. Raise ConfigError if it does not exist."""
        partitions = self.topic(tp[0]).partitions
        if not 0 <= tp[1] < len(partitions):
            raise ConfigError(
                f"the fake cluster has no partition {tp[1]} of {tp[0]!r}, which has "
                f"{len(partitions)} partitions"
            )
        return partitions[tp[1]]

    def find(self, name: str, number: int) -> Partition | None:
        """Return a partition, or None if it does not exist."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        return topic.partitions[number]
