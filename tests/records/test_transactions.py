from types import ModuleType

import pytest

from asyncconsumer.errors import CorruptRecords
from tests.records.test_record_set import offsets, read
from tests.support.record_encoder import batch, control, rows

pytestmark = pytest.mark.fast

TRANSACTIONAL = 0x10
ABORT, COMMIT = 0, 1


def sent(first: int, producer: int, count: int = 2) -> bytes:
    return batch(rows(count, first), attributes=TRANSACTIONAL, producer=producer)


def test_without_a_list_all_records_except_markers_are_delivered(decoder: ModuleType) -> None:
    data = sent(0, 7) + control(2, 7, ABORT) + sent(3, 7)
    assert offsets(decoder, data) == [0, 1, 3, 4]


def test_an_aborted_transaction_is_skipped_until_its_marker(decoder: ModuleType) -> None:
    data = sent(0, 7) + sent(2, 7) + control(4, 7, ABORT) + sent(5, 7) + control(7, 7, COMMIT)
    records = read(decoder, data, aborted=[(7, 0)])
    assert [f.offset for f in records] == [5, 6]
    assert records.next_offset == 8


def test_only_records_of_the_aborted_producer_are_skipped(decoder: ModuleType) -> None:
    data = sent(0, 7) + sent(2, 8) + control(4, 7, ABORT) + control(5, 8, COMMIT)
    assert offsets(decoder, data, aborted=[(7, 0)]) == [2, 3]


def test_a_transaction_counts_as_aborted_only_from_its_first_offset(decoder: ModuleType) -> None:
    data = sent(0, 7) + control(2, 7, COMMIT) + sent(3, 7) + control(5, 7, ABORT)
    assert offsets(decoder, data, aborted=[(7, 3)]) == [0, 1]


def test_records_outside_of_transactions_are_delivered_from_any_producer(
    decoder: ModuleType,
) -> None:
    data = sent(0, 7) + batch(rows(2, 2), producer=7) + batch(rows(1, 4)) + control(5, 7, ABORT)
    assert offsets(decoder, data, aborted=[(7, 0)]) == [2, 3, 4]


def test_a_repeated_abort_marker_has_no_effect(decoder: ModuleType) -> None:
    data = sent(0, 7) + control(2, 7, ABORT) * 2 + control(3, 7, ABORT) + sent(4, 7)
    assert offsets(decoder, data, aborted=[(7, 0)]) == [4, 5]


def test_the_list_of_aborted_transactions_may_be_unordered(decoder: ModuleType) -> None:
    data = sent(0, 7) + control(2, 7, ABORT) + sent(3, 8) + control(5, 8, ABORT) + sent(6, 7)
    assert offsets(decoder, data, aborted=[(8, 3), (7, 0)]) == [6, 7]


def test_the_same_producer_may_abort_twice(decoder: ModuleType) -> None:
    data = sent(0, 7) + control(2, 7, ABORT) + sent(3, 7) + control(5, 7, ABORT) + sent(6, 7)
    assert offsets(decoder, data, aborted=[(7, 0), (7, 3)]) == [6, 7]


def test_an_unknown_kind_of_marker_is_skipped(decoder: ModuleType) -> None:
    data = sent(0, 7) + control(2, 7, 9) + sent(3, 7) + control(5, 7, ABORT) + sent(6, 7)
    assert offsets(decoder, data, aborted=[(7, 0)]) == [6, 7]


def test_a_marker_without_a_readable_key_is_corrupt(decoder: ModuleType) -> None:
    data = sent(0, 8) + control(2, 7, ABORT, key=b"\0\0")
    records = read(decoder, data, aborted=[(7, 0)])
    with pytest.raises(CorruptRecords, match="control key") as caught:
        list(records)
    assert (caught.value.offset, caught.value.resume) == (2, 3)
    assert offsets(decoder, data) == [0, 1]


def test_an_empty_control_batch_ends_no_transaction(decoder: ModuleType) -> None:
    empty = batch([], base=2, attributes=0x30, producer=7)
    data = sent(0, 7) + empty + sent(3, 7)
    assert offsets(decoder, data, aborted=[(7, 0)]) == []
