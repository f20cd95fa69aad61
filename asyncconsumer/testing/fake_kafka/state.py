"""What brokers know: topics, partitions, who leads them, which brokers there are."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.fake_kafka.log import Log
from asyncconsumer.types import Address, TopicPartition


@dataclass(slots=True, eq=False)
class Partition:
    """One partition as a broker sees it. `leader` is a node id, or -1 while there is none."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    epoch: int = 0
    log: Log = field(default_factory=Log)
    watchers: dict[Callable[[], None], None] = field(default_factory=dict)

    def copy(self) -> "Partition":
        """The partition as it is now; nobody watches the copy."""
        return Partition(
            self.number, self.leader, self.replicas, self.isr, self.epoch, self.log.copy()
        )

    def led_by(self, leader: int) -> None:
        """A new leader, or none, in a new epoch."""
        self.leader = leader
        self.epoch += 1
        if leader >= 0:
            self.log.begin_epoch(self.epoch)

    def changed(self) -> None:
        """Tell the fetches that wait here."""
        for watcher in list(self.watchers):
            watcher()


@dataclass(slots=True, eq=False)
class Topic:
    """One topic. `incarnation` counts how often it was made."""

    name: str
    topic_id: UUID
    incarnation: int
    partitions: list[Partition]


class Place(NamedTuple):
    """Where clients reach a broker."""

    node_id: int
    address: Address
    rack: str | None


class View:
    """What is known of the cluster; a broker that is out of date has a copy."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}  # by topic id
        self.places: dict[int, Place] = {}  # of the brokers that are alive

    def copy(self) -> "View":
        """The view as it is now."""
        other = View()
        other.topics = {
            name: Topic(
                name, topic.topic_id, topic.incarnation, [p.copy() for p in topic.partitions]
            )
            for name, topic in self.topics.items()
        }
        other.names, other.places = dict(self.names), dict(self.places)
        return other

    def add(self, topic: Topic) -> None:
        """Make a topic known."""
        self.topics[topic.name] = topic
        self.names[topic.topic_id.bytes] = topic.name

    def remove(self, name: str) -> Topic:
        """Forget a topic."""
        topic = self.topic(name)
        del self.topics[name], self.names[topic.topic_id.bytes]
        return topic

    def changed(self) -> None:
        """Tell all fetches that wait."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.changed()

    def topic(self, name: str) -> Topic:
        """A topic that a test speaks of, and that must be there."""
        try:
            return self.topics[name]
        except KeyError:
            known = ", ".join(self.topics) or "none"
            raise ConfigError(f"no topic {name!r} in the fake cluster: there are {known}") from None

    def partition(self, at: TopicPartition) -> Partition:
        """A partition that a test speaks of, and that must be there."""
        partitions = self.topic(at[0]).partitions
        if not 0 <= at[1] < len(partitions):
            raise ConfigError(
                f"{at[0]} has {len(partitions)} partitions in the fake cluster: no {at[1]}"
            )
        return partitions[at[1]]

    def find(self, name: str, number: int) -> Partition | None:
        """A partition that a request speaks of."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        return topic.partitions[number]
