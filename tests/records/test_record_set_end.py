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
def test_the_end_is_where_decoding_ends(decoder: ModuleType, count: int) -> None:
    data = b"".join(ENTRIES[:count])
    records = decoder.Records(data, topic="t", partition=0)
    for _ in records:
        pass
    assert decoder.record_set_end(data, -1)[0] == records.next_offset


def test_an_incomplete_batch_is_not_counted(decoder: ModuleType) -> None:
    data = batch(rows(5)) + batch(rows(5, 5))[:-1]
    assert decoder.record_set_end(data, -1)[0] == 5


@pytest.mark.parametrize("data", [b"", b"\0" * 20, b"\xff" * 100, batch(rows(1))[:60]])
def test_without_a_complete_batch_the_default_is_returned(decoder: ModuleType, data: bytes) -> None:
    assert decoder.record_set_end(data, 42)[0] == 42


def test_control_batches_and_old_messages_count(decoder: ModuleType) -> None:
    assert decoder.record_set_end(control(26, 7, 0), -1)[0] == 27
    assert decoder.record_set_end(message(27, magic=0) + message(28), -1)[0] == 29
    assert decoder.record_set_end(wrapper(message(0) + message(1), 30, codec=1), -1)[0] == 31


def test_a_compacted_batch_ends_after_its_last_offset(decoder: ModuleType) -> None:
    data = bytearray(batch(rows(2, 100)))
    data[23:27] = (50).to_bytes(4, "big")  # its last record was compacted
    assert decoder.record_set_end(data, -1)[0] == 151


@given(st.binary(max_size=200), st.data())
def test_decoders_agree_on_mutated_headers(noise: bytes, draw: st.DataObject) -> None:
    data = bytearray(batch(rows(2)) + batch(rows(2, 2)) + noise)
    for _ in range(3):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    assert len({twin.record_set_end(data, 7) for twin in TWINS}) == 1


def test_both_decoders_are_tested() -> None:
    assert len(TWINS) == len(decoding.available())


def test_the_leader_epoch_of_the_last_complete_batch_is_returned(decoder: ModuleType) -> None:
    data = batch(rows(2), epoch=3) + batch(rows(2, 2), epoch=4) + batch(rows(1, 4), epoch=5)[:-1]
    assert decoder.record_set_end(data, -1) == (4, 4)
    assert decoder.record_set_end(data + b"", 0)[1] == 4
    assert decoder.record_set_end(b"", 7) == (7, -1)
    assert decoder.record_set_end(message(27), -1) == (28, -1)
