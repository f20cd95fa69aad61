"""The reasons why groups, workers and dead letter topics need attention."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from asyncconsumer.dashboard.group_history import GroupHistory
from asyncconsumer.dashboard.model import DeadLetterTopic, GroupOverview, HealthReason
from asyncconsumer.web.status import Status

STALLED_SECONDS: Final = 30.0
_LONG_REBALANCE: Final = 10.0
_RECENT: Final = 300.0  # seconds for which a dead letter counts as recent
_LEVELS: Final = {"error": 0, "warning": 1, "ok": 2}


def group_reasons(
    group: GroupOverview, history: GroupHistory, now: float
) -> Iterator[HealthReason]:
    """Yield the reasons why a group needs attention. `now` is monotonic time."""
    if group.error is not None:
        yield HealthReason("warning", group.group, f"The group cannot be read: {group.error}")
        return
    lag = group.point.lag if group.point is not None else 0
    if (since := history.rebalancing_since) is not None and now - since >= _LONG_REBALANCE:
        yield HealthReason("warning", group.group, f"Rebalancing for {now - since:.0f} s")
    if lag and not group.members:
        yield HealthReason("warning", group.group, f"No members, and {lag:,} records are waiting")
        return
    unowned = sum(1 for row in group.partitions if row.lag and row.member_id is None)
    if unowned and not group.is_rebalancing:
        yield HealthReason(
            "warning", group.group, f"{unowned} partitions with lag are not assigned to a member"
        )
    silent = 0.0 if history.progress is None else now - history.progress
    if lag and silent >= STALLED_SECONDS:
        yield HealthReason(
            "error", group.group, f"Stalled: {lag:,} records wait, no commit for {silent:.0f} s"
        )


def worker_reasons(workers: Mapping[str, Status]) -> Iterator[HealthReason]:
    """Yield the reasons why this app, or workers of `asyncconsumer run`, need attention."""
    for name, status in workers.items():
        subject = f"worker {name}" if name else "this app"
        if not status.live:
            reason = status.reason or "failed"
            yield HealthReason("error", subject, f"{status.state}: {reason}")
        elif not status.ready:
            reason = status.reason or "not ready"
            yield HealthReason("warning", subject, f"{status.state}: {reason}")


def dead_letter_reasons(topics: Iterable[DeadLetterTopic], time: float) -> Iterator[HealthReason]:
    """Yield a reason for each topic with recent dead letters. `time` is wall time."""
    for topic in topics:
        if topic.open and topic.last_written is not None and time - topic.last_written < _RECENT:
            yield HealthReason(
                "warning", topic.topic, f"New dead letters, {topic.open:,} are not done"
            )


def worst_first(reasons: Iterable[HealthReason]) -> tuple[HealthReason, ...]:
    """Return the reasons, errors first."""
    return tuple(sorted(reasons, key=lambda reason: (_LEVELS[reason.level], reason.subject)))
