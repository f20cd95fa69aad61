"""The paths of Kafka's znodes. Names are checked, so that no name can change the path."""

from dataclasses import dataclass
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.types import TopicPartition, is_legal_topic

CONSUMERS: Final = "/consumers"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"


def is_legal(name: str) -> bool:
    """Return whether Kafka accepts `name` as the name of a topic or a group."""
    return is_legal_topic(name)


def broker(broker_id: int) -> str:
    """Return the path of the znode with the registration of a broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of the znode with the partitions and replicas of a topic."""
    return f"{TOPICS}/{_checked('topic', name)}"


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """The paths of the znodes of one consumer group."""

    group: str

    def __post_init__(self) -> None:
        _checked("group_id", self.group)

    @property
    def root(self) -> str:
        """The path of the group's own znode."""
        return f"{CONSUMERS}/{self.group}"

    @property
    def ids(self) -> str:
        """The path below which the members are registered."""
        return f"{self.root}/ids"

    @property
    def owners(self) -> str:
        """The path below which the owners of partitions are stored."""
        return f"{self.root}/owners"

    @property
    def offsets(self) -> str:
        """The path below which offsets are committed."""
        return f"{self.root}/offsets"

    def member(self, consumer_id: str) -> str:
        """Return the path of a member's registration.

        Kafka allows any consumer id, but this client requires one that fits a znode name.
        """
        plain = consumer_id.isprintable() and "/" not in consumer_id and len(consumer_id) <= 1024
        if not plain or consumer_id in ("", ".", ".."):
            raise ConfigError(
                f"consumer id {_short(consumer_id)} cannot name a znode; use 1 to 1024 printable "
                "characters without /"
            )
        return f"{self.ids}/{consumer_id}"

    def topic_owners(self, name: str) -> str:
        """Return the path below which the owners of a topic's partitions are stored."""
        return f"{self.owners}/{_checked('topic', name)}"

    def owner(self, tp: TopicPartition) -> str:
        """Return the path of the owner znode of a partition."""
        return f"{self.topic_owners(tp.topic)}/{_number(tp)}"

    def topic_offsets(self, name: str) -> str:
        """Return the path below which the offsets of a topic are committed."""
        return f"{self.offsets}/{_checked('topic', name)}"

    def offset(self, tp: TopicPartition) -> str:
        """Return the path of the committed offset of a partition."""
        return f"{self.topic_offsets(tp.topic)}/{_number(tp)}"


def _checked(subject: str, name: str) -> str:
    if not is_legal(name):
        raise ConfigError(
            f"{subject} {_short(name)} is invalid; Kafka allows 1 to 249 of a-z, A-Z, 0-9, "
            "'.', '_' and '-', but not '.' or '..'"
        )
    return name


def _number(tp: TopicPartition) -> int:
    if not 0 <= tp.partition < 2**31:
        raise ConfigError(f"{tp}: a partition number must be from 0 to {2**31 - 1}")
    return int(tp.partition)


def _short(name: str) -> str:
    return repr(name) if len(name) <= 60 else f"{name[:60]!r}... ({len(name)} characters)"
