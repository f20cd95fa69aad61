"""Ends of record sets, found without decoding them."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer.records import decoding
from tests.records.test_decoder_agreement import ENTRIES, TWINS
from tests.support.record_encoder import batch, control, message, rows, wrapper

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("count", range(1, len(ENTRIES) + 1))
def test_it_is_where_decoding_would_end(decoder: ModuleType, count: int) -> None:
    data = b"".join(ENTRIES[:count])
    records = decoder.Records(data, topic="t", partition=0)
    for _ in records:
        pass
    assert decoder.record_set_end(data, -1)[0] == records.next_offset


def test_a_batch_that_came_only_in_part_is_not_counted(decoder: ModuleType) -> None:
    data = batch(rows(5)) + batch(rows(5, 5))[:-1]
    assert decoder.record_set_end(data, -1)[0] == 5


@pytest.mark.parametrize("data", [b"", b"\0" * 20, b"\xff" * 100, batch(rows(1))[:60]])
def test_without_a_whole_batch_it_is_what_the_caller_says(decoder: ModuleType, data: bytes) -> None:
    assert decoder.record_set_end(data, 42)[0] == 42


def test_control_batches_and_old_messages_count(decoder: ModuleType) -> None:
    assert decoder.record_set_end(control(26, 7, 0), -1)[0] == 27
    assert decoder.record_set_end(message(27, magic=0) + message(28), -1)[0] == 29
    assert decoder.record_set_end(wrapper(message(0) + message(1), 30, codec=1), -1)[0] == 31


def test_a_compacted_batch_ends_behind_its_last_offset(decoder: ModuleType) -> None:
    data = bytearray(batch(rows(2, 100)))
    data[23:27] = (50).to_bytes(4, "big")  # its last record is gone
    assert decoder.record_set_end(data, -1)[0] == 151


@given(st.binary(max_size=200), st.data())
def test_the_twins_agree_on_spoiled_headers(noise: bytes, draw: st.DataObject) -> None:
    data = bytearray(batch(rows(2)) + batch(rows(2, 2)) + noise)
    for _ in range(3):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    assert len({twin.record_set_end(data, 7) for twin in TWINS}) == 1


def test_both_decoders_are_tested() -> None:
    assert len(TWINS) == len(decoding.available())


def test_it_tells_the_leader_epoch_of_the_last_whole_batch(decoder: ModuleType) -> None:
    data = batch(rows(2), epoch=3) + batch(rows(2, 2), epoch=4) + batch(rows(1, 4), epoch=5)[:-1]
    assert decoder.record_set_end(data, -1) == (4, 4)
    assert decoder.record_set_end(data + b"", 0)[1] == 4
    assert decoder.record_set_end(b"", 7) == (7, -1)
    assert decoder.record_set_end(message(27), -1) == (28, -1)
