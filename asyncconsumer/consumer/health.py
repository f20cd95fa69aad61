"""The health of a consumer: one state, and the reason for the state."""

import asyncio
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isinf
from typing import Any, Final, Protocol

from asyncconsumer.consumer.topic_check import TopicCheck
from asyncconsumer.errors import NoCommittedOffset
from asyncconsumer.fetch.liveness import Liveness
from asyncconsumer.fetch.manager import FetchManager, Progress
from asyncconsumer.group.manual import GrouplessMembership
from asyncconsumer.group.membership import Membership
from asyncconsumer.metrics.measurements import Measurements
from asyncconsumer.rebalance import Rebalancer
from asyncconsumer.types import TopicPartition
from asyncconsumer.web.status import Status, lag_by_name

_RECENT: Final = 5.0  # seconds within which progress counts as current


class HealthState(enum.StrEnum):
    """The state of a consumer in its `Health`."""

    IDLE = "idle"  # nothing to read
    CONSUMING = "consuming"
    REBALANCING = "rebalancing"  # or joining the group
    STALLED = "stalled"  # there are records to fetch, and none arrive
    DISCONNECTED = "disconnected"  # no broker responds
    HANDLER_BOUND = "handler_bound"  # records are buffered, and the reader takes none
    FENCED = "fenced"  # the partitions may belong to other members
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a consumer. Times are seconds since an event, or None if it never happened."""

    state: HealthState
    reason: str | None = None
    started: bool = False  # whether the first assignment is over, or none is awaited
    assignment: frozenset[TopicPartition] = frozenset()
    lag: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    last_heartbeat: float | None = None
    last_fetch: float | None = None
    last_progress: float | None = None

    @property
    def ready(self) -> bool:
        """Whether the assignment, which may be empty, is known and its records are being read."""
        return self.state in (HealthState.IDLE, HealthState.CONSUMING)

    @property
    def live(self) -> bool:
        """Whether the consumer can recover without a restart."""
        return self.state is not HealthState.CLOSED

    def as_dict(self) -> dict[str, Any]:
        """Return the health as a dict that JSON can represent.

        Partitions are listed by topic, and `last_` times are seconds.
        """
        assignment: dict[str, list[int]] = {}
        for tp in sorted(self.assignment):
            assignment.setdefault(tp.topic, []).append(tp.partition)
        return {
            "state": self.state.value,
            "reason": self.reason,
            "live": self.live,
            "ready": self.ready,
            "started": self.started,
            "assignment": assignment,
            "lag": lag_by_name(self.lag),
            "last_heartbeat": self.last_heartbeat,
            "last_fetch": self.last_fetch,
            "last_progress": self.last_progress,
        }


class ObservableMembership(Membership, Protocol):
    """A membership that distinguishes an empty assignment from one that is not received yet."""

    @property
    def awaiting_assignment(self) -> bool:
        """Whether the member waits for the group to send its first assignment or a new one."""


def health_of(
    membership: ObservableMembership, rebalancer: Rebalancer, manager: FetchManager
) -> Health:
    """Return the current health of a consumer."""
    now, progress = asyncio.get_running_loop().time(), manager.progress()
    lag = _lag(rebalancer, progress)
    disconnected = _disconnected(manager.liveness, progress)
    state, reason = _state(membership, rebalancer, manager, disconnected, lag, now)
    return Health(
        state=state,
        reason=reason,
        started=rebalancer.rebalanced.is_set(),
        assignment=frozenset(rebalancer.reading),
        lag=lag,
        last_heartbeat=_ago(membership.last_heartbeat, now),
        last_fetch=_ago(manager.last_received, now),
        last_progress=_ago(manager.liveness.last_moved, now),
    )


def with_topics(health: Health, topics: TopicCheck) -> Health:
    """Return `health`, with another state and reason if subscribed topics do not exist.

    A consumer that rebalances keeps its state. Missing topics are known before the first
    assignment, which may take long.
    """
    if (reason := topics.reason) is not None:
        if health.ready:
            return replace(health, state=HealthState.STALLED, reason=reason)
        if health.state is HealthState.REBALANCING:
            return replace(health, reason=reason)
    if not health.ready:
        return health
    if topics.unmatched is not None and not health.assignment:
        return replace(health, reason=topics.unmatched)
    return health


def _state(
    membership: ObservableMembership,
    rebalancer: Rebalancer,
    manager: FetchManager,
    disconnected: str | None,
    lag: Mapping[TopicPartition, int | None],
    now: float,
) -> tuple[HealthState, str | None]:
    """Return the most severe state that applies, together with its reason."""
    if not rebalancer.rebalanced.is_set():
        return HealthState.REBALANCING, "waiting for the first assignment"
    grouped = not isinstance(membership, GrouplessMembership)
    if grouped and rebalancer.reading and (membership.lost or now >= membership.deadline):
        return HealthState.FENCED, "the partitions may be assigned to other members"
    if disconnected is not None:
        return HealthState.DISCONNECTED, disconnected
    if not rebalancer.idle.is_set():
        return HealthState.REBALANCING, "the assignment is changing"
    if not rebalancer.reading and membership.awaiting_assignment:
        return (
            HealthState.REBALANCING,
            "the partitions were revoked, and a new assignment is awaited",
        )
    if without := rebalancer.without_offset:
        return HealthState.STALLED, str(NoCommittedOffset(min(without)))
    if stalled := manager.stalled():
        first = next(iter(stalled.values()))
        bound = all(partition.unread for partition in stalled.values())
        return (HealthState.HANDLER_BOUND if bound else HealthState.STALLED), str(first)
    moved = now - manager.liveness.last_moved < _RECENT
    if moved or any(behind is None or behind > 0 for behind in lag.values()):
        return HealthState.CONSUMING, None
    return HealthState.IDLE, None if rebalancer.reading else "no partition is assigned"


def _disconnected(liveness: Liveness, progress: Mapping[TopicPartition, Progress]) -> str | None:
    if liveness.used and liveness.used <= liveness.silent:
        return f"no answer from {', '.join(map(str, sorted(liveness.used)))}"
    trouble = [
        partition.error
        for partition in progress.values()
        if partition.node_id is None and partition.error
    ]
    if progress and len(trouble) == len(progress):
        return str(trouble[0])
    return None


def _lag(
    rebalancer: Rebalancer, progress: Mapping[TopicPartition, Progress]
) -> dict[TopicPartition, int | None]:
    """Return the lag of each partition in offsets, or None while it is not known."""
    lag: dict[TopicPartition, int | None] = {}
    for tp in rebalancer.reading:
        position = rebalancer.position(tp)
        end = progress[tp].high_watermark if tp in progress else -1
        lag[tp] = None if position is None or end < 0 else max(0, end - position)
    return lag


def _ago(moment: float, now: float) -> float | None:
    return None if isinf(moment) else max(0.0, now - moment)


def status_of(
    health: Health,
    events: Mapping[str, int],
    group: str | None = None,
    measurements: Measurements | None = None,
) -> Status:
    """Return the health of a consumer as plain values."""
    return Status(
        live=health.live,
        ready=health.ready,
        started=health.started,
        state=health.state.value,
        reason=health.reason,
        group=group,
        lag=lag_by_name(health.lag),
        seconds_since={
            "heartbeat": health.last_heartbeat,
            "fetch": health.last_fetch,
            "progress": health.last_progress,
        },
        measurements=measurements or {},
        events={name.replace(" ", "_"): count for name, count in events.items()},
    )
