from types import ModuleType

import cramjam
import pytest

from asyncconsumer.records.compression import _xxh32_of_few
from tests.records.test_record_set import offsets, read
from tests.support.record_encoder import batch, message, rows, wrapper, xerial

pytestmark = pytest.mark.fast


def inner(count: int, first: int = 0, *, magic: int = 1) -> bytes:
    return b"".join(
        message(first + i, b"v%d" % i, magic=magic, timestamp=100 + i) for i in range(count)
    )


def test_messages_of_magic_0_have_no_timestamp(decoder: ModuleType) -> None:
    data = message(7, b"v", key=None, magic=0) + message(9, None, magic=0)
    record, two = read(decoder, data)
    assert (record.offset, record.key, record.value, record.headers) == (7, None, b"v", ())
    assert (two.offset, two.key, two.value) == (9, b"key", None)
    assert (record.timestamp, record.timestamp_type) == (-1, -1)


def test_messages_of_magic_1_have_a_timestamp_of_either_type(decoder: ModuleType) -> None:
    data = message(0, timestamp=5) + message(1, timestamp=6, attributes=8)
    assert [(f.timestamp, f.timestamp_type) for f in read(decoder, data)] == [(5, 0), (6, 1)]


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_offsets_in_a_wrapper_of_magic_1_are_relative(decoder: ModuleType, codec: int) -> None:
    records = read(decoder, wrapper(inner(4), 103, codec=codec), offset=101)
    assert [(f.offset, f.value, f.timestamp) for f in records] == [
        (101, b"v1", 101),
        (102, b"v2", 102),
        (103, b"v3", 103),
    ]
    assert records.next_offset == 104


def test_offsets_in_a_wrapper_of_magic_1_may_have_gaps(decoder: ModuleType) -> None:
    gappy = message(0) + message(3) + message(4)
    assert offsets(decoder, wrapper(gappy, 104)) == [100, 103, 104]


def test_absolute_offsets_in_a_wrapper_of_magic_1_are_kept(decoder: ModuleType) -> None:
    assert offsets(decoder, wrapper(inner(3, 100), 102)) == [100, 101, 102]


def test_offsets_in_a_wrapper_of_magic_0_are_absolute(decoder: ModuleType) -> None:
    data = wrapper(inner(3, 50, magic=0), 52, magic=0)
    records = read(decoder, data)
    assert [(f.offset, f.timestamp, f.timestamp_type) for f in records] == [
        (50, -1, -1),
        (51, -1, -1),
        (52, -1, -1),
    ]


def test_the_append_time_of_a_wrapper_applies_to_all_its_messages(decoder: ModuleType) -> None:
    data = wrapper(inner(2), 1, attributes=8, timestamp=999)
    assert {(f.timestamp, f.timestamp_type) for f in read(decoder, data)} == {(999, 1)}


def test_snappy_of_java_clients_is_read_in_a_wrapper(decoder: ModuleType) -> None:
    data = wrapper(b"", 2, codec=2, value=xerial(inner(3), block=40))
    assert offsets(decoder, data) == [0, 1, 2]


def broken_header_checksum(data: bytes) -> bytes:
    """Return lz4 with the header checksum of old clients, which includes the magic bytes."""
    frame = bytearray(cramjam.lz4.compress(data))
    end = 6 + (8 if frame[4] & 8 else 0)
    right = frame[end]
    frame[end] = _xxh32_of_few(bytes(frame[0:end])) >> 8 & 0xFF
    assert frame[end] != right
    return bytes(frame)


def test_lz4_with_the_wrong_header_checksum_of_old_clients_is_read(
    decoder: ModuleType,
) -> None:
    data = inner(3, 5, magic=0)
    value = broken_header_checksum(data)
    assert offsets(decoder, wrapper(data, 7, codec=3, magic=0, value=value)) == [5, 6, 7]
    assert offsets(decoder, wrapper(data, 7, codec=3, magic=0)) == [5, 6, 7]


def test_a_set_may_contain_several_formats(decoder: ModuleType) -> None:
    data = message(0, magic=0) + message(1) + wrapper(inner(3), 4) + batch(rows(2, 5))
    records = read(decoder, data)
    assert [f.offset for f in records] == list(range(7))
    assert records.next_offset == 7


def test_a_truncated_message_ends_the_iteration(decoder: ModuleType) -> None:
    part = wrapper(inner(3), 4)
    for cut in range(1, len(part)):
        records = read(decoder, message(1) + part[:cut])
        assert [f.offset for f in records] == [1]
        assert records.incomplete == 0
        alone = read(decoder, part[:cut])
        assert list(alone) == []
        assert alone.incomplete == (len(part) if cut >= 12 else 61)
