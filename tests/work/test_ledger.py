"""What may be committed, in whatever order records are finished."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer.handlers.commit_metadata import encode
from asyncconsumer.handlers.ledger import Ledger
from asyncconsumer.protocol.messages import EARLIEST
from asyncconsumer.types import Offset

pytestmark = pytest.mark.fast


def committed(ledger: Ledger) -> Offset:
    found = ledger.committable()
    assert found is not None
    return found


def test_nothing_is_committed_beyond_the_first_that_is_not_finished() -> None:
    ledger = Ledger(10)
    for offset in range(10, 15):
        ledger.begin(offset)
    ledger.reach(15, 7)
    progress = [int(committed(ledger))]
    for offset in (12, 10, 14, 11, 13):
        ledger.finish(offset)
        progress.append(int(committed(ledger)))
    assert progress == [10, 10, 11, 11, 13, 15]
    assert committed(ledger).leader_epoch == 7
    assert committed(ledger).metadata == ""


def test_where_to_begin_is_not_known_before_it_was_read() -> None:
    ledger = Ledger(EARLIEST)
    assert ledger.committable() is None
    ledger.reach(3, 0)
    assert committed(ledger) == 3


def test_offsets_without_a_record_hold_nothing_up() -> None:
    ledger = Ledger(0)
    for offset in (3, 9):  # the others were compacted away
        ledger.begin(offset)
    ledger.reach(20, 0)  # and markers of transactions follow
    ledger.finish(3)
    assert committed(ledger) == 9
    ledger.finish(9)
    assert committed(ledger) == 20


def test_what_was_finished_before_is_told_again_until_it_was_passed() -> None:
    first = Ledger(0)
    for offset in range(10):
        first.begin(offset)
    first.reach(10, 0)
    for offset in (2, 3, 7):
        first.finish(offset)
    second = Ledger(committed(first))
    assert [n for n in range(10) if second.is_finished(n)] == [2, 3, 7]
    second.begin(0)
    second.reach(1, 0)
    third = Ledger(committed(second))  # it was killed before it got any further
    assert [n for n in range(10) if third.is_finished(n)] == [2, 3, 7]


def beyond(kept_epoch: int, *met: int) -> list[int]:
    """What counts as finished beyond a commit, once these leaders' records were met."""
    first = Ledger(0)
    for offset in range(5):
        first.begin(offset)
    first.reach(5, kept_epoch)
    for offset in (2, 3):
        first.finish(offset)
    second = Ledger(committed(first))
    for epoch in met:
        second.meet(epoch)
    return [n for n in range(5) if second.is_finished(n)]


def test_what_a_later_leader_wrote_was_not_finished_by_anyone() -> None:
    assert beyond(3, 1, 3) == [2, 3]
    assert beyond(3, 3, 4) == []
    assert beyond(3, 4, 3) == []


@pytest.mark.parametrize(("kept", "met"), [(-1, 0), (0, -1), (-1, -1)])
def test_where_the_leader_is_not_known_records_are_repeated_rather_than_lost(
    kept: int, met: int
) -> None:
    assert beyond(kept, met) == []


def test_what_was_finished_before_keeps_its_leader_until_it_was_passed() -> None:
    ledger = Ledger(Offset(0, leader_epoch=3, metadata=encode(0, [(2, 3)])))
    ledger.meet(1)
    ledger.begin(0)
    ledger.reach(1, 1)
    assert committed(ledger).leader_epoch == 3
    ledger.reach(9, 2)
    assert committed(ledger).leader_epoch == 2


OPERATIONS = st.lists(st.tuples(st.sampled_from("rfffkm"), st.integers(0, 40)), max_size=60)


@given(OPERATIONS)
def test_nothing_is_lost_and_what_was_told_is_not_repeated(moves: list[tuple[str, int]]) -> None:
    """Read (r), finish (f), commit (m), be killed (k), in any order; offsets 5n are not there."""
    kept = Offset(0)
    ledger, in_hand, at = Ledger(kept), list[int](), 0
    finished: set[int] = set()  # as far as this ledger can know
    known: set[int] = set()  # when the last commit was made
    for move, number in moves:
        if move == "r":
            for offset in range(at, at + 1 + number % 7):
                if offset % 5 and not ledger.is_finished(offset):
                    assert offset not in known
                    ledger.begin(offset)
                    in_hand.append(offset)
            at += 1 + number % 7
            ledger.reach(at, 0)
        elif move == "f" and in_hand:
            done = in_hand.pop(number % len(in_hand))
            ledger.finish(done)
            finished.add(done)
        elif move == "m":
            told = committed(ledger)
            assert told >= kept
            kept, known = told, set(finished)
            later = Ledger(told)
            failure_headers = {
                n for n in range(at + 50) if n % 5 and (n < told or later.is_finished(n))
            }
            assert failure_headers == finished
        elif move == "k":
            ledger, in_hand, at, finished = Ledger(kept), [], int(kept), set(known)
