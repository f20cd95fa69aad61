"""Random faults on a KIP-848 group: one owner, no loss, commits that only advance.

`make simulate` runs thousands of schedules.
"""

from math import inf

import pytest

from asyncconsumer.group.kip848.membership import ConsumerGroupMembership
from asyncconsumer.group.kip848.state import MemberState848, Phase, Timeouts
from asyncconsumer.group.kip848.topic_watch import PartitionsById
from asyncconsumer.types import MemberIdentity
from tests.support.planted_bugs import (
    lost_partitions_are_still_read,
    offsets_are_not_loaded,
    records_in_flight_count_as_finished,
)
from tests.support.schedules import Bug, must_find, play_all
from tests.support.worlds.kip848_group import run_schedule


def test_one_owner_delivers_no_record_is_lost_and_commits_advance() -> None:
    play_all(run_schedule)


# --- bugs that the schedules must find -----------------------------------------------------------


def nothing_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroupMembership, "deadline", property(lambda self: inf))


def a_revocation_has_no_deadline(patch: pytest.MonkeyPatch) -> None:
    right = Timeouts.end

    def end(self: Timeouts, start: float, timeout: float) -> float:
        return inf if timeout == self.rebalance else right(self, start, timeout)

    patch.setattr(Timeouts, "end", end)


def an_assignment_is_confirmed_before_its_delivery(patch: pytest.MonkeyPatch) -> None:
    right = MemberState848.hand_over

    def hand_over(self: MemberState848, goal: PartitionsById) -> None:
        right(self, goal)
        self.confirm(goal)

    patch.setattr(MemberState848, "hand_over", hand_over)


def a_fenced_member_rejoins_without_a_loss(patch: pytest.MonkeyPatch) -> None:
    def mark_fenced(self: MemberState848) -> None:
        self._forget(Phase.JOINING)

    patch.setattr(MemberState848, "mark_fenced", mark_fenced)


def commits_are_those_of_the_first_epoch(patch: pytest.MonkeyPatch) -> None:
    first: dict[ConsumerGroupMembership, MemberIdentity] = {}

    def old(self: ConsumerGroupMembership) -> MemberIdentity | None:
        state = self._state
        now = MemberIdentity(state.member_id, state.epoch, self._config.group_instance_id)
        return None if self.lost else first.setdefault(self, now)

    patch.setattr(ConsumerGroupMembership, "identity", property(old))


def owned_partitions_are_never_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemberState848, "unacknowledged", property(lambda self: False))


@pytest.mark.parametrize(
    "bug",
    [
        nothing_is_fenced,
        a_revocation_has_no_deadline,
        an_assignment_is_confirmed_before_its_delivery,
        a_fenced_member_rejoins_without_a_loss,
        commits_are_those_of_the_first_epoch,
        owned_partitions_are_never_sent,
        records_in_flight_count_as_finished,
        lost_partitions_are_still_read,
        offsets_are_not_loaded,
    ],
    ids=lambda bug: bug.__name__,
)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    must_find(run_schedule)
