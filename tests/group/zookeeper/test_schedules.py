"""Random faults on a ZooKeeper group: one owner, no loss, commits that only advance.

`make simulate` runs thousands of schedules.
"""

from collections.abc import AsyncIterator, Mapping
from math import inf

import pytest

from asyncconsumer.errors import NodeExists
from asyncconsumer.group.membership import Assignment
from asyncconsumer.group.zookeeper.membership import ZooKeeperMembership
from asyncconsumer.offsets.zookeeper import ZooKeeperOffsets
from asyncconsumer.types import TopicPartition
from tests.support.planted_bugs import (
    lost_partitions_are_still_read,
    offsets_are_not_loaded,
    records_in_flight_count_as_finished,
)
from tests.support.schedules import Bug, must_find, play_all
from tests.support.worlds.zookeeper_group import run_schedule


def test_one_owner_delivers_no_record_is_lost_and_commits_advance() -> None:
    play_all(run_schedule)


# --- bugs that the schedules must find -----------------------------------------------------------


def nothing_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ZooKeeperMembership, "deadline", property(lambda self: inf))


def claims_are_released_before_the_revocation(patch: pytest.MonkeyPatch) -> None:
    assignments = ZooKeeperMembership.assignments

    async def hasty(self: ZooKeeperMembership) -> AsyncIterator[Assignment]:
        before: set[TopicPartition] = set()
        async for assignment in assignments(self):
            if self.epoch is not None:
                await self._release(before - assignment.partitions.keys(), self.epoch)
            before = set(assignment.partitions)
            yield assignment

    patch.setattr(ZooKeeperMembership, "assignments", hasty)


def claims_of_other_members_are_ignored(patch: pytest.MonkeyPatch) -> None:
    claim = ZooKeeperMembership._claim

    async def rude(
        self: ZooKeeperMembership, shares: Mapping[TopicPartition, str], epoch: int
    ) -> dict[TopicPartition, NodeExists]:
        await claim(self, shares, epoch)
        return {}

    patch.setattr(ZooKeeperMembership, "_claim", rude)


def commits_are_valid_in_any_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ZooKeeperOffsets, "_claim_epoch", lambda self: self._session.epoch)
    patch.setattr(ZooKeeperMembership, "lost", property(lambda self: False))


def the_group_is_not_watched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "asyncconsumer.zookeeper.watch.Watch.mark_changed", lambda self: self.changed.set()
    )


@pytest.mark.parametrize(
    "bug",
    [
        nothing_is_fenced,
        claims_are_released_before_the_revocation,
        claims_of_other_members_are_ignored,
        records_in_flight_count_as_finished,
        lost_partitions_are_still_read,
        commits_are_valid_in_any_session,
        offsets_are_not_loaded,
        the_group_is_not_watched,
    ],
    ids=lambda bug: bug.__name__,
)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    must_find(run_schedule)
