"""Whatever happens to a KIP-848 group: one owner delivers, nothing is lost, commits go forward.

`make simulate` runs the schedules by the ten thousand.
"""

from collections.abc import Collection, Mapping
from math import inf

import pytest

from asyncconsumer.group.kip848.membership import ConsumerGroupMembership
from asyncconsumer.group.kip848.state import MemberState848, Phase, Timeouts
from asyncconsumer.group.kip848.topic_watch import Partitions
from asyncconsumer.group.membership import Assignment
from asyncconsumer.offsets.committer import Committer
from asyncconsumer.rebalance import Rebalancer
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import MemberIdentity, TopicPartition
from tests.consumer_group.world import run_schedule
from tests.playing import Bug, must_find, play_all


def test_one_owner_delivers_nothing_is_lost_and_commits_go_forward() -> None:
    play_all(run_schedule)


# --- bugs that the schedules must find -----------------------------------------------------------


def nothing_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroupMembership, "deadline", property(lambda self: inf))


def letting_go_may_take_for_ever(patch: pytest.MonkeyPatch) -> None:
    right = Timeouts.end

    def end(self: Timeouts, start: float, timeout: float) -> float:
        return inf if timeout == self.rebalance else right(self, start, timeout)

    patch.setattr(Timeouts, "end", end)


def it_is_acknowledged_before_the_receipt(patch: pytest.MonkeyPatch) -> None:
    right = MemberState848.give

    def give(self: MemberState848, goal: Partitions) -> None:
        right(self, goal)
        self.settle(goal)

    patch.setattr(MemberState848, "give", give)


def who_was_fenced_joins_again_as_if_nothing_was_lost(patch: pytest.MonkeyPatch) -> None:
    def lost(self: MemberState848) -> None:
        self._forget(Phase.JOINING)

    patch.setattr(MemberState848, "lost", lost)


def commits_are_those_of_the_first_epoch(patch: pytest.MonkeyPatch) -> None:
    first: dict[ConsumerGroupMembership, MemberIdentity] = {}

    def old(self: ConsumerGroupMembership) -> MemberIdentity | None:
        talk = self._talk
        now = MemberIdentity(talk.member_id, talk.epoch, self._config.group_instance_id)
        return None if self.lost else first.setdefault(self, now)

    patch.setattr(ConsumerGroupMembership, "identity", property(old))


def the_coordinator_is_never_told_what_we_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemberState848, "unacknowledged", property(lambda self: False))


def what_is_in_hand_counts_as_finished(patch: pytest.MonkeyPatch) -> None:
    finished = Stream.finished

    def too_much(self: Stream) -> dict[TopicPartition, int]:
        return {
            one: self._held.next_offset if self._held and self._held.partition == one else offset
            for one, offset in finished(self).items()
        }

    patch.setattr(Stream, "finished", too_much)


def partitions_that_are_lost_are_read_on(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Rebalancer, assignment: Assignment) -> None:
        pass

    patch.setattr(Rebalancer, "_revoke", nothing)


def offsets_are_not_loaded(patch: pytest.MonkeyPatch) -> None:
    async def everything_is_old(
        self: Committer, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        return dict.fromkeys(partitions, 10)

    patch.setattr(Committer, "load", everything_is_old)


@pytest.mark.parametrize(
    "bug",
    [
        nothing_is_fenced,
        letting_go_may_take_for_ever,
        it_is_acknowledged_before_the_receipt,
        who_was_fenced_joins_again_as_if_nothing_was_lost,
        commits_are_those_of_the_first_epoch,
        the_coordinator_is_never_told_what_we_own,
        what_is_in_hand_counts_as_finished,
        partitions_that_are_lost_are_read_on,
        offsets_are_not_loaded,
    ],
    ids=lambda bug: bug.__name__,
)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    must_find(run_schedule)
