"""Random faults on the fetch engine: each offset once, in order, within the budget.

`make simulate` runs thousands of schedules.
"""

import pytest

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.fetch.cursor import Cursor
from asyncconsumer.fetch.fetch_request import PartitionResponse
from asyncconsumer.fetch.fetcher import Fetcher, Refusal, Report
from asyncconsumer.fetch.placement import PartitionPlacer
from asyncconsumer.types import TopicPartition
from tests.support.schedules import Bug, must_find, play_all
from tests.support.worlds.fetch import run_schedule


def test_every_offset_is_delivered_once_and_in_order() -> None:
    play_all(run_schedule)


# --- bugs that the schedules must find -----------------------------------------------------------


def late_answers_are_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cursor, "detach", lambda self: None)


def cursors_move_twice(patch: pytest.MonkeyPatch) -> None:
    accept = Fetcher._accept

    def accept_and_move_on(
        self: Fetcher, cursor: Cursor, part: PartitionResponse, *, alone: bool
    ) -> None:
        before = cursor.offset
        accept(self, cursor, part, alone=alone)
        if cursor.offset - before > 30:
            cursor.offset += 1

    patch.setattr(Fetcher, "_accept", accept_and_move_on)


def room_is_not_given_back(patch: pytest.MonkeyPatch) -> None:
    give_back = Budget.give_back
    patch.setattr(Budget, "give_back", lambda self, size: give_back(self, size - size // 20))


def room_is_given_back_twice(patch: pytest.MonkeyPatch) -> None:
    give_back = Budget.give_back
    patch.setattr(Budget, "give_back", lambda self, size: give_back(self, 2 * size))


def refusals_are_dropped(patch: pytest.MonkeyPatch) -> None:
    on_report = PartitionPlacer.on_report
    count = 0

    def hear_most(self: PartitionPlacer, report: Report) -> None:
        nonlocal count
        count += isinstance(report, Refusal)
        if not (isinstance(report, Refusal) and count % 10 == 0):
            on_report(self, report)

    patch.setattr(PartitionPlacer, "on_report", hear_most)


def chunks_in_flight_are_read_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    drop = Channel.drop

    def drop_what_waits(self: Channel, partition: TopicPartition) -> int:
        in_flight, self._popped = self._popped, {}
        try:
            return drop(self, partition)
        finally:
            self._popped = in_flight

    patch.setattr(Channel, "drop", drop_what_waits)
    patch.setattr("asyncconsumer.streams.stream.Stream.forget", lambda self, partition: None)


def buffered_chunks_are_kept_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Channel, "drop", lambda self, partition: 0)


@pytest.mark.parametrize(
    "bug",
    [
        late_answers_are_accepted,
        cursors_move_twice,
        room_is_not_given_back,
        room_is_given_back_twice,
        refusals_are_dropped,
        chunks_in_flight_are_read_after_a_loss,
        buffered_chunks_are_kept_after_a_loss,
    ],
    ids=lambda bug: bug.__name__,
)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    must_find(run_schedule)
