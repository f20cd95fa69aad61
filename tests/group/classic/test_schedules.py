"""Random faults on a classic group: one owner, no loss, commits that only advance.

`make simulate` runs thousands of schedules.
"""

import asyncio
from dataclasses import replace
from functools import partial
from math import inf

import pytest

from asyncconsumer.group.assignors import CooperativeStickyAssignor
from asyncconsumer.group.classic.attempt import RejoinSignal
from asyncconsumer.group.classic.heartbeats import HeartbeatResult, Heartbeats
from asyncconsumer.group.classic.member import MemberEvent
from asyncconsumer.group.classic.membership import ClassicMembership
from asyncconsumer.group.classic.reactions import Reaction
from asyncconsumer.group.classic.subscribed_topics import SubscribedTopics
from asyncconsumer.group.membership import Assignment
from asyncconsumer.testing.fake_kafka.group_state import FakeGroup
from tests.support.planted_bugs import (
    lost_partitions_are_still_read,
    records_in_flight_count_as_finished,
)
from tests.support.schedules import Bug, must_find, play_all
from tests.support.worlds.classic_group import run_schedule


def test_one_owner_delivers_no_record_is_lost_and_commits_advance() -> None:
    play_all(run_schedule)


def now() -> float:
    return asyncio.get_running_loop().time()


# --- bugs that the schedules must find -----------------------------------------------------------


def nothing_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicMembership, "deadline", property(lambda self: inf))


def a_session_counts_from_a_time_after_the_response(patch: pytest.MonkeyPatch) -> None:
    answered = Heartbeats._answered

    def late(self: Heartbeats, sent_at: float, *, stable: bool) -> None:
        answered(self, now() + 2.0, stable=stable)

    patch.setattr(Heartbeats, "_answered", late)


def heartbeat_results_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicMembership, "_on_heartbeat_result", lambda self, result: None)


def a_loss_reported_by_a_heartbeat_is_ignored(patch: pytest.MonkeyPatch) -> None:
    on_result = ClassicMembership._on_heartbeat_result

    def ignoring(self: ClassicMembership, result: HeartbeatResult) -> None:
        if result.reaction not in (Reaction.REJOIN_EMPTY, Reaction.REJOIN_AS_NEW):
            on_result(self, result)

    patch.setattr(ClassicMembership, "_on_heartbeat_result", ignoring)


def a_loss_counts_as_a_successful_heartbeat(patch: pytest.MonkeyPatch) -> None:
    on_result = ClassicMembership._on_heartbeat_result

    def wrong(self: ClassicMembership, result: HeartbeatResult) -> None:
        if result.reaction in (Reaction.REJOIN_EMPTY, Reaction.REJOIN_AS_NEW):
            self._heartbeats._answered(now(), stable=True)
            self._rejoin.request("as if it were revoked")
        else:
            on_result(self, result)

    patch.setattr(ClassicMembership, "_on_heartbeat_result", wrong)


def a_loss_is_not_reported(patch: pytest.MonkeyPatch) -> None:
    async def quiet(self: ClassicMembership) -> Assignment | None:
        self._member.on(MemberEvent.JOIN)
        return None

    patch.setattr(ClassicMembership, "_begin", quiet)


def partitions_are_kept_while_an_eager_member_joins(patch: pytest.MonkeyPatch) -> None:
    async def hasty(self: ClassicMembership) -> Assignment | None:
        self._member.on(MemberEvent.RELEASED)
        return None

    patch.setattr(ClassicMembership, "_release", hasty)


def revoked_partitions_are_kept(patch: pytest.MonkeyPatch) -> None:
    join_generation = ClassicMembership._join_generation

    async def keeping(self: ClassicMembership) -> Assignment | None:
        partitions = vars(self).setdefault("kept", {})
        assignment = await join_generation(self)
        if assignment is None:
            return None
        partitions |= assignment.partitions
        return replace(assignment, partitions=dict(partitions))

    patch.setattr(ClassicMembership, "_join_generation", keeping)


def revoked_partitions_are_not_assigned_to_others(patch: pytest.MonkeyPatch) -> None:
    request = RejoinSignal.request

    def silent(self: RejoinSignal, reason: str) -> None:
        if not reason.startswith("partitions were revoked"):
            request(self, reason)

    patch.setattr(RejoinSignal, "request", silent)


def lost_partitions_are_committed_as_if_revoked(patch: pytest.MonkeyPatch) -> None:
    """Brokers refuse such commits. The fake accepts them, so that the bug has an effect."""
    end = Heartbeats.end

    def lasting(self: Heartbeats) -> None:
        identity = self.identity
        end(self)
        self.identity = identity

    async def revoked(self: ClassicMembership) -> Assignment | None:
        if self._owned:
            self._owned = frozenset()
            return Assignment()
        self._member.on(MemberEvent.JOIN)
        return None

    patch.setattr(FakeGroup, "may_commit", lambda self, requested: 0)
    patch.setattr(Heartbeats, "end", lasting)
    patch.setattr(ClassicMembership, "lost", False)
    patch.setattr(ClassicMembership, "_begin", revoked)


def added_partitions_are_not_detected(patch: pytest.MonkeyPatch) -> None:
    async def blind(self: SubscribedTopics) -> str | None:
        return None

    patch.setattr(SubscribedTopics, "changed", blind)


@pytest.mark.parametrize(
    "bug",
    [
        nothing_is_fenced,
        a_session_counts_from_a_time_after_the_response,
        heartbeat_results_are_ignored,
        a_loss_reported_by_a_heartbeat_is_ignored,
        a_loss_counts_as_a_successful_heartbeat,
        a_loss_is_not_reported,
        partitions_are_kept_while_an_eager_member_joins,
        lost_partitions_are_committed_as_if_revoked,
        added_partitions_are_not_detected,
        records_in_flight_count_as_finished,
        lost_partitions_are_still_read,
    ],
    ids=lambda bug: bug.__name__,
)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    must_find(run_schedule)


@pytest.mark.parametrize(
    "bug",
    [revoked_partitions_are_kept, revoked_partitions_are_not_assigned_to_others],
    ids=lambda bug: bug.__name__,
)
def test_a_bug_planted_in_cooperation_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    must_find(partial(run_schedule, kinds=[CooperativeStickyAssignor]))
