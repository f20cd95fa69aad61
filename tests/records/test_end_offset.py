"""Record sets read up to an end offset."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records.arrow import to_arrow
from tests.records.test_decoder_agreement import ENTRIES, TWINS
from tests.support.record_encoder import batch, message, rows, wrapper

pytestmark = pytest.mark.fast


def offsets(decoder: ModuleType, data: bytes, end: int, start: int = 0) -> list[int]:
    records = decoder.Records(data, topic="t", partition=0, offset=start, end=end)
    return [record.offset for record in records]


@pytest.mark.parametrize("end", range(12))
def test_records_from_the_end_offset_on_are_not_delivered(decoder: ModuleType, end: int) -> None:
    data = batch(rows(5)) + batch(rows(5, 5), codec=4)
    assert offsets(decoder, data, end, start=2) == list(range(2, min(end, 10)))


@pytest.mark.parametrize("end", range(28, 34))
def test_old_messages_end_at_the_end_offset(decoder: ModuleType, end: int) -> None:
    data = message(28) + wrapper(message(0) + message(1), 30, codec=1) + message(31)
    assert offsets(decoder, data, end) == [n for n in (28, 29, 30, 31) if n < end]


def test_corruption_after_the_end_offset_is_not_raised(decoder: ModuleType) -> None:
    data = batch(rows(5)) + batch(rows(5, 5), crc=1)
    assert offsets(decoder, data, 5) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptRecords):
        offsets(decoder, data, 6)


@pytest.mark.parametrize("end", [0, 3, 5, 7])
def test_columns_end_at_the_end_offset(decoder: ModuleType, end: int) -> None:
    data = batch(rows(5)) + batch(rows(5, 5))
    table = to_arrow(decoder.Records(data, topic="t", partition=0, end=end))
    assert (table.num_rows if table is not None else 0) == end


@given(
    st.integers(-1, 40), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)
)
def test_decoders_agree_up_to_any_end_offset_on_mutated_bytes(
    end: int, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(b"".join(ENTRIES))
    for offset, byte in changes:
        data[offset % len(data)] = byte

    def outcome(twin: ModuleType) -> list[object]:
        records = twin.Records(
            bytes(data), topic="t", partition=0, end=end, max_decompressed_bytes=1 << 16
        )
        seen: list[object] = []
        try:
            seen.extend((record.offset, record.value, records.next_offset) for record in records)
        except CorruptRecords as error:
            seen.append((error.offset, error.reason, error.resume))
        return [*seen, records.next_offset, records.incomplete]

    first, *others = (outcome(twin) for twin in TWINS)
    assert all(other == first for other in others)
