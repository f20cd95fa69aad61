"""The state of a cluster at one time, as the page and the terminal view show it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from asyncconsumer.admin.diagnosis.finding import Severity
from asyncconsumer.admin.results import (
    BrokerDescription,
    GroupKind,
    MemberDescription,
    PartitionLag,
)


class LagPoint(NamedTuple):
    """The lag and the rates of a group at one time."""

    time: float  # seconds since 1970
    lag: int
    lag_seconds: float | None
    consumed: float | None  # committed records per second
    produced: float | None


@dataclass(frozen=True, slots=True)
class HealthReason:
    """A fact that makes a group, a worker or the cluster unhealthy."""

    level: Severity
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class RebalanceRecord:
    """A rebalance in the timeline. `seconds` is None while it is running."""

    time: float
    group: str
    seconds: float | None
    joined: tuple[str, ...] = ()
    departed: tuple[str, ...] = ()
    moved: int = 0
    members: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """A dead letter topic. `open` is the number of records from the first unfinished one on.

    A dead letter is unfinished until it is replayed or dropped.
    """

    topic: str
    records: int
    open: int
    last_written: float | None = None  # seconds since 1970
    last_error: str | None = None
    last_source: str | None = None


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group with members, partitions, lag and rates. `error` says why these are unknown."""

    group: str
    kind: GroupKind
    state: str | None
    assignor: str | None = None
    is_rebalancing: bool = False
    members: tuple[MemberDescription, ...] = ()
    partitions: tuple[PartitionLag, ...] = ()
    hidden_partitions: int = 0
    point: LagPoint | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The state of a cluster. After a failed poll, `error` says why it is outdated."""

    time: float  # of the last successful poll, in seconds since 1970
    interval: float
    version: int = 0
    error: str | None = None
    age: float = 0.0  # seconds since the last successful poll
    brokers: tuple[BrokerDescription, ...] = ()
    groups: tuple[GroupOverview, ...] = ()
    hidden_groups: int = 0
    timeline: tuple[RebalanceRecord, ...] = ()
    dead_letters: tuple[DeadLetterTopic, ...] = ()
    health: tuple[HealthReason, ...] = ()
    workers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the snapshot as a dict that JSON can represent."""
        return asdict(self)
