"""The results of the admin client. `dataclasses.asdict` converts each of them for JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from asyncconsumer.types import TopicPartition

GroupKind: TypeAlias = Literal["classic", "consumer", "share", "streams", "zookeeper"]
"""The protocol of a group; "consumer" is the one of KIP-848."""


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of the cluster."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_controller: bool = False


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition with its leader and the node ids of its replicas, the preferred replica first."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica of the partition is not in sync."""
        return len(self.in_sync) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config of a topic. Its value is None if it is sensitive."""

    name: str
    value: str | None
    source: str
    is_read_only: bool = False
    is_sensitive: bool = False


@dataclass(frozen=True, slots=True)
class AclEntry:
    """A permission that an ACL of the cluster grants or denies."""

    principal: str
    host: str
    operation: str
    permission: str
    resource_type: str
    resource: str
    pattern: str


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list. `state` and `members` are None if they are not reported."""

    group: str
    kind: GroupKind
    state: str | None = None
    members: int | None = None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A live member of a group, with its assigned partitions by topic.

    `subscription` has topics or a pattern.
    """

    member_id: str
    client_id: str | None
    host: str | None
    instance_id: str | None = None
    subscription: tuple[str, ...] = ()
    assignment: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned to the member."""
        return frozenset(
            TopicPartition(topic, number)
            for topic, numbers in self.assignment.items()
            for number in numbers
        )


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """The state of a group and its members."""

    group: str
    kind: GroupKind
    state: str
    assignor: str | None
    members: tuple[MemberDescription, ...]

    def owner(self, tp: TopicPartition) -> MemberDescription | None:
        """Return the member to which a partition is assigned, or None."""
        return next((member for member in self.members if tp in member.partitions), None)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in one partition.

    `lag` is the number of offsets after the committed one. `lag_seconds` is the age of the first
    record that is not committed. It is 0 if there is no such record, and None if it was not
    requested or is unknown.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    lag_seconds: float | None = None
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class LogRange:
    """The first offset of a partition, and the offset after its last record."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def tp(self) -> TopicPartition:
        """The topic and the number of the partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of each partition of a group."""

    group: str
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        """The sum of the known lags, in records."""
        return sum(row.lag for row in self.partitions if row.lag is not None)

    @property
    def max_seconds(self) -> float | None:
        """The largest known lag in seconds."""
        ages = [row.lag_seconds for row in self.partitions if row.lag_seconds is not None]
        return max(ages, default=None)


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The committed offset of a partition before and after a change."""

    topic: str
    partition: int
    before: int | None
    after: int
    note: str = ""

    @property
    def tp(self) -> TopicPartition:
        """The partition whose offset changes."""
        return TopicPartition(self.topic, self.partition)
