"""Offsets that may be committed, for records that are finished in any order."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer import Record
from asyncconsumer.handlers.commit_metadata import encode
from asyncconsumer.handlers.ledger import Ledger
from asyncconsumer.protocol.messages import EARLIEST
from asyncconsumer.records.decoding import RecordBlock
from asyncconsumer.types import Offset

pytestmark = pytest.mark.fast


def begin(ledger: Ledger, offset: int) -> None:
    """Start a record that waits in its handler."""
    block = RecordBlock()
    block.fill([Record("t", 0, offset)], 1, inf)
    ledger.add(block)
    ledger.start_all()


def committed(ledger: Ledger) -> Offset:
    offset = ledger.committable()
    assert offset is not None
    return offset


def test_the_first_unfinished_record_limits_the_commit() -> None:
    ledger = Ledger(10)
    for offset in range(10, 15):
        begin(ledger, offset)
    ledger.advance_position(15, 7)
    progress = [int(committed(ledger))]
    for offset in (12, 10, 14, 11, 13):
        ledger.finish(offset)
        progress.append(int(committed(ledger)))
    assert progress == [10, 10, 11, 11, 13, 15]
    assert committed(ledger).leader_epoch == 7
    assert committed(ledger).metadata == ""


def test_no_offset_is_committable_before_the_first_record() -> None:
    ledger = Ledger(EARLIEST)
    assert ledger.committable() is None
    ledger.advance_position(3, 0)
    assert committed(ledger) == 3


def test_gaps_between_offsets_do_not_limit_the_commit() -> None:
    ledger = Ledger(0)
    for offset in (3, 9):  # the other records were compacted
        begin(ledger, offset)
    ledger.advance_position(20, 0)  # transaction markers follow
    ledger.finish(3)
    assert committed(ledger) == 9
    ledger.finish(9)
    assert committed(ledger) == 20


def test_finished_ranges_are_reported_until_the_commit_passes_them() -> None:
    first = Ledger(0)
    for offset in range(10):
        begin(first, offset)
    first.advance_position(10, 0)
    for offset in (2, 3, 7):
        first.finish(offset)
    second = Ledger(committed(first))
    assert [n for n in range(10) if second.is_finished(n)] == [2, 3, 7]
    begin(second, 0)
    second.advance_position(1, 0)
    third = Ledger(
        committed(second)
    )  # the second owner was killed before it finished another record
    assert [n for n in range(10) if third.is_finished(n)] == [2, 3, 7]


def beyond(kept_epoch: int, *met: int) -> list[int]:
    """Return the offsets that count as finished after a commit, with the epochs of its leaders."""
    first = Ledger(0)
    for offset in range(5):
        begin(first, offset)
    first.advance_position(5, kept_epoch)
    for offset in (2, 3):
        first.finish(offset)
    second = Ledger(committed(first))
    for epoch in met:
        second.drop_if_truncated(epoch)
    return [n for n in range(5) if second.is_finished(n)]


def test_records_of_a_later_leader_do_not_count_as_finished() -> None:
    assert beyond(3, 1, 3) == [2, 3]
    assert beyond(3, 3, 4) == []
    assert beyond(3, 4, 3) == []


@pytest.mark.parametrize(("retained", "met"), [(-1, 0), (0, -1), (-1, -1)])
def test_records_are_repeated_if_the_leader_epoch_is_unknown(retained: int, met: int) -> None:
    assert beyond(retained, met) == []


def test_finished_ranges_keep_their_leader_epoch_until_passed() -> None:
    ledger = Ledger(Offset(0, leader_epoch=3, metadata=encode(0, [(2, 3)])))
    ledger.drop_if_truncated(1)
    begin(ledger, 0)
    ledger.advance_position(1, 1)
    assert committed(ledger).leader_epoch == 3
    ledger.advance_position(9, 2)
    assert committed(ledger).leader_epoch == 2


OPERATIONS = st.lists(st.tuples(st.sampled_from("rfffkm"), st.integers(0, 40)), max_size=60)


@given(OPERATIONS)
def test_no_record_is_lost_and_no_committed_record_is_repeated(
    moves: list[tuple[str, int]],
) -> None:
    """Read (r), finish (f), commit (m), be killed (k), in any order. Offsets 5n do not exist."""
    retained = Offset(0)
    ledger, in_flight, position = Ledger(retained), list[int](), 0
    finished: set[int] = set()  # known to the current ledger
    known: set[int] = set()  # known to the last commit
    for move, number in moves:
        if move == "r":
            for offset in range(position, position + 1 + number % 7):
                if offset % 5 and not ledger.is_finished(offset):
                    assert offset not in known
                    begin(ledger, offset)
                    in_flight.append(offset)
            position += 1 + number % 7
            ledger.advance_position(position, 0)
        elif move == "f" and in_flight:
            done = in_flight.pop(number % len(in_flight))
            ledger.finish(done)
            finished.add(done)
        elif move == "m":
            reported = committed(ledger)
            assert reported >= retained
            retained, known = reported, set(finished)
            later = Ledger(reported)
            reported_finished = {
                n for n in range(position + 50) if n % 5 and (n < reported or later.is_finished(n))
            }
            assert reported_finished == finished
        elif move == "k":
            ledger, in_flight, position, finished = Ledger(retained), [], int(retained), set(known)
