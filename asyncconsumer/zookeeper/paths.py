"""Where Kafka keeps what in ZooKeeper. No name can lead out of its place."""

from dataclasses import dataclass
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.types import TopicPartition, is_legal_topic

CONSUMERS: Final = "/consumers"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"


def is_legal(name: str) -> bool:
    """Whether Kafka takes it for the name of a topic or a group."""
    return is_legal_topic(name)


def broker(broker_id: int) -> str:
    """A broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's partitions and replicas."""
    return f"{TOPICS}/{_checked('topic', name)}"


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """The nodes of one consumer group."""

    group: str

    def __post_init__(self) -> None:
        _checked("group_id", self.group)

    @property
    def root(self) -> str:
        """All of the group."""
        return f"{CONSUMERS}/{self.group}"

    @property
    def ids(self) -> str:
        """Its members."""
        return f"{self.root}/ids"

    @property
    def owners(self) -> str:
        """Who reads which partition."""
        return f"{self.root}/owners"

    @property
    def offsets(self) -> str:
        """How far the group has read."""
        return f"{self.root}/offsets"

    def member(self, consumer_id: str) -> str:
        """A member's registration. Kafka lets the id be any text, so only its place is kept."""
        plain = consumer_id.isprintable() and "/" not in consumer_id and len(consumer_id) <= 1024
        if not plain or consumer_id in ("", ".", ".."):
            raise ConfigError(
                f"consumer id {_short(consumer_id)} cannot name a znode: take 1 to 1024 printable "
                "characters without /"
            )
        return f"{self.ids}/{consumer_id}"

    def topic_owners(self, name: str) -> str:
        """Who reads the partitions of a topic."""
        return f"{self.owners}/{_checked('topic', name)}"

    def owner(self, where: TopicPartition) -> str:
        """Who reads a partition."""
        return f"{self.topic_owners(where.topic)}/{_number(where)}"

    def topic_offsets(self, name: str) -> str:
        """How far the partitions of a topic have been read."""
        return f"{self.offsets}/{_checked('topic', name)}"

    def offset(self, where: TopicPartition) -> str:
        """How far a partition has been read."""
        return f"{self.topic_offsets(where.topic)}/{_number(where)}"


def _checked(what: str, name: str) -> str:
    if not is_legal(name):
        raise ConfigError(
            f"{what} {_short(name)} is no name that Kafka takes: 1 to 249 of a-z, A-Z, 0-9, "
            "'.', '_' and '-', and not '.' or '..'"
        )
    return name


def _number(where: TopicPartition) -> int:
    if not 0 <= where.partition < 2**31:
        raise ConfigError(f"{where}: a partition is a number from 0 to {2**31 - 1}")
    return int(where.partition)


def _short(name: str) -> str:
    return repr(name) if len(name) <= 60 else f"{name[:60]!r}... ({len(name)} characters)"
