"""Rates, rebalances and the timeline, from observations at given times."""

from typing import Any

import pytest

from asyncconsumer import ConsumerGroupDescription, MemberDescription, PartitionLag
from asyncconsumer.dashboard.group_history import MAX_POINTS, GroupHistory
from asyncconsumer.dashboard.health_reasons import (
    dead_letter_reasons,
    group_reasons,
    worker_reasons,
    worst_first,
)
from asyncconsumer.dashboard.model import DeadLetterTopic, GroupOverview, RebalanceRecord
from asyncconsumer.dashboard.timeline import MAX_RECORDS, RebalanceTimeline
from asyncconsumer.web.status import Status

pytestmark = pytest.mark.fast


def row(
    partition: int, committed: int | None, end: int, seconds: float | None = None
) -> PartitionLag:
    lag = None if committed is None else end - committed
    return PartitionLag("t", partition, committed, end, lag, seconds)


def group(state: str = "Stable", **owned: tuple[int, ...]) -> ConsumerGroupDescription:
    members = tuple(
        MemberDescription(name, None, None, assignment={"t": partitions})
        for name, partitions in owned.items()
    )
    return ConsumerGroupDescription("g", "classic", state, "range", members)


def test_rates_cover_the_last_seconds() -> None:
    history = GroupHistory("g")
    assert tuple(history.add_lag([row(0, 0, 100)], 0, 1_000))[1:] == (100, None, None, None)
    point = history.add_lag([row(0, 50, 300, 4.5)], 5, 1_005)
    assert tuple(point) == (1_005, 250, 4.5, 10.0, 40.0)
    for second in range(10, 60, 5):
        point = history.add_lag([row(0, 50, 300)], second, 1_000 + second)
    assert (point.consumed, point.produced) == (0, 0)


def test_resets_and_new_partitions_cause_no_wrong_rate() -> None:
    history = GroupHistory("g")
    history.add_lag([row(0, 100, 100)], 0, 0)
    point = history.add_lag([row(0, 0, 100), row(1, 1_000, 1_000)], 1, 1)
    assert (point.consumed, point.produced) == (0, 0)


def test_history_is_bounded() -> None:
    history = GroupHistory("g")
    for second in range(2 * MAX_POINTS):
        history.add_lag([row(0, second, second)], second, second)
    assert len(history.points) == MAX_POINTS
    assert len(history._offsets) < 20


def test_the_first_observation_is_no_rebalance() -> None:
    assert GroupHistory("g").add_members(group(a=(0, 1)), 0, 0) is None


def test_a_rebalance_is_recorded_from_start_to_end() -> None:
    history = GroupHistory("g")
    history.add_members(group(a=(0, 1)), 0, 100)
    assert history.add_members(group(a=(0, 1)), 1, 101) is None
    running = history.add_members(group("PreparingRebalance", a=(), b=()), 2, 102)
    assert running == RebalanceRecord(102, "g", None, ("b",), (), 0, 2)
    assert history.rebalancing_since == 2
    ended = history.add_members(group(a=(0,), b=(1,)), 4.5, 104.5)
    assert ended == RebalanceRecord(102, "g", 2.5, ("b",), (), 1, 2)
    assert history.add_members(group(a=(0,), b=(1,)), 5, 105) is None


def test_a_rebalance_between_two_polls_is_detected_by_the_owners() -> None:
    history = GroupHistory("g")
    history.add_members(group(a=(0,), b=(1,)), 0, 100)
    record = history.add_members(group(a=(0, 1)), 1, 101)
    assert record == RebalanceRecord(101, "g", 0.0, (), ("b",), 1, 1)


def test_the_timeline_replaces_running_rebalances_and_is_bounded() -> None:
    timeline = RebalanceTimeline()
    timeline.add(RebalanceRecord(1, "g", None))
    timeline.add(RebalanceRecord(2, "other", 0.0))
    timeline.add(RebalanceRecord(1, "g", 3.0))
    assert [(record.group, record.seconds) for record in timeline.records] == [
        ("other", 0.0),
        ("g", 3.0),
    ]
    for number in range(2 * MAX_RECORDS):
        timeline.add(RebalanceRecord(10 + number, "g", 0.0))
    assert len(timeline.records) == MAX_RECORDS
    assert timeline.records[0].time == 9 + 2 * MAX_RECORDS


def reasons(rows: list[PartitionLag], silent: float, **options: Any) -> list[tuple[str, str]]:
    history = GroupHistory("g")
    point = history.add_lag(rows, 0, 0)
    overview = GroupOverview(
        "g", "classic", "Stable", partitions=tuple(rows), point=point, **options
    )
    return [(reason.level, reason.text) for reason in group_reasons(overview, history, silent)]


MEMBER = (MemberDescription("a", None, None),)


def test_health_of_groups_has_reasons() -> None:
    owned = PartitionLag("t", 0, 5, 9, 4, member_id="a")
    assert reasons([owned], 1, members=MEMBER) == []
    assert reasons([owned], 31, members=MEMBER) == [
        ("error", "Stalled: 4 records wait, no commit for 31 s")
    ]
    assert reasons([row(0, 9, 9)], 100, members=MEMBER) == []
    assert reasons([row(0, 1, 2_001)], 0) == [
        ("warning", "No members, and 2,000 records are waiting")
    ]
    assert reasons([row(0, 1, 9)], 0, members=MEMBER) == [
        ("warning", "1 partitions with lag are not assigned to a member")
    ]
    assert reasons([], 0, error="not allowed") == [
        ("warning", "The group cannot be read: not allowed")
    ]


def test_a_long_rebalance_is_a_reason() -> None:
    history = GroupHistory("g")
    history.add_members(group(a=(0,)), 0, 0)
    history.add_members(group("PreparingRebalance", a=()), 5, 5)
    overview = GroupOverview("g", "classic", "PreparingRebalance", is_rebalancing=True)
    assert [*group_reasons(overview, history, 14)] == []
    (reason,) = group_reasons(overview, history, 20)
    assert reason.text == "Rebalancing for 15 s"


def test_unreachable_workers_and_dead_letters_are_reasons() -> None:
    workers = {
        "1": Status(live=True, ready=True, state="consuming"),
        "2": Status(live=True, ready=False, state="stalled", reason="no response"),
        "3": Status(live=False, ready=False, state="failed"),
    }
    topics = [
        DeadLetterTopic("new.dlq", 3, 2, last_written=990),
        DeadLetterTopic("old.dlq", 3, 2, last_written=10),
        DeadLetterTopic("done.dlq", 3, 0, last_written=990),
    ]
    listed = worst_first([*dead_letter_reasons(topics, 1_000), *worker_reasons(workers)])
    assert [(reason.level, reason.subject, reason.text) for reason in listed] == [
        ("error", "worker 3", "failed: failed"),
        ("warning", "new.dlq", "New dead letters, 2 are not done"),
        ("warning", "worker 2", "stalled: no response"),
    ]
