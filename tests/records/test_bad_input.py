"""Invalid inputs that a broker or a disk may return instead of a record set.

Each input is one `CorruptRecords` with its offset. Earlier records are delivered first.
"""

import contextlib
import pickle
import struct
from types import ModuleType

import pytest

from asyncconsumer.errors import ConsumerError, CorruptRecords
from tests.records.test_record_set import read
from tests.support.record_encoder import (
    Row,
    batch,
    compress,
    entry,
    message,
    record,
    rows,
    varint,
    wrapper,
)

pytestmark = pytest.mark.fast

GOOD = batch(rows(10))


def framed(body: bytes) -> bytes:
    """Return a record of that body."""
    return varint(len(body)) + body


def one(body: bytes, **fields: int) -> bytes:
    """Return a batch at offset 10 with the body as its only record."""
    return batch(framed(body), base=10, **{"count": 1, **fields})


def cut(data: bytes, offset: int, *, to: bytes) -> bytes:
    return data[:offset] + to + data[offset + len(to) :]


def of_length(length: int) -> bytes:
    """Return a batch with a wrong length."""
    return cut(batch(rows(1, 10)), 8, to=struct.pack(">i", length))


BOMB = b"\0" * (8 << 20)
FIELDS = b"\0\0\0"  # attributes, timestamp and offset deltas
MINUS_TWO = varint(-2)
TOO_LONG = b"\xff" * 10
NEAR_2_63 = b"\xfe" + b"\xff" * 8 + b"\x01"  # zigzag of 2**63 - 1
NEXT = batch(rows(1, 20))

BAD: dict[str, tuple[bytes, str, int | None]] = {
    "length 0": (of_length(0), "a batch length of 0", None),
    "length -1": (
        of_length(-1),
        "a batch length of -1",
        None,
    ),
    "length 2^31-1": (
        of_length(2**31 - 1),
        "more than the maximum of",
        None,
    ),
    "length below its header": (
        of_length(30),
        "less than its header",
        None,
    ),
    "unknown magic 7": (batch(rows(1, 10), magic=7), "unknown magic 7", None),
    "unknown magic before a good batch": (batch(rows(1, 10), magic=7) + NEXT, "magic 7", 20),
    "magic -1": (batch(rows(1, 10), magic=-1), "unknown magic -1", None),
    "bad checksum": (batch(rows(3, 10), crc=1), "its checksum does not match", 13),
    "bad checksum, header in doubt": (batch(rows(3, 10), crc=1, delta=999), "checksum", None),
    "bad checksum before a good batch": (batch(rows(3, 10), crc=1, delta=9) + NEXT, "checksum", 20),
    "record count 2^31-1": (
        batch(rows(3, 10), count=2**31 - 1),
        "a record count of 2147483647 that does not fit",
        13,
    ),
    "record count negative": (batch(rows(3, 10), count=-1), "a negative record count", 13),
    "one record less than counted": (batch(rows(3, 10), count=2), "bytes after its last", 13),
    "negative last offset": (batch(rows(1, 10), delta=-1), "a last offset out of range", None),
    "last offset beyond 2^63": (
        batch(record(Row(2**63 - 2), 2**63 - 2), base=2**63 - 2, delta=9, count=1),
        "a last offset out of range",
        None,
    ),
    "codec 5": (batch(b"x" * 10, base=10, codec=5, count=1), "unknown compression codec 5", 11),
    "codec 6": (batch(b"x" * 10, base=10, codec=6, count=1), "unknown compression codec 6", 11),
    "codec 7": (batch(b"x" * 10, base=10, codec=7, count=1), "unknown compression codec 7", 11),
    "varint of ten ff": (batch(TOO_LONG, base=10, count=1), "a varint longer", 11),
    "length near 2^63": (batch(NEAR_2_63, base=10, count=1), "a varint longer", 11),
    "record length negative": (
        batch(varint(-5) + b"\0" * 10, base=10, count=1),
        "a record with a negative length",
        11,
    ),
    "record length beyond the batch": (
        batch(varint(500) + b"\0" * 10, base=10, count=1),
        "a length that goes beyond its batch",
        11,
    ),
    "record of no bytes": (
        batch(varint(0) + b"\0" * 9, base=10, count=1),
        "a field that is cut off",
        11,
    ),
    "timestamp of ten ff": (one(b"\0" + TOO_LONG + b"\0" * 9), "a varint longer", 11),
    "timestamp beyond 2^63": (
        one(b"\0" + NEAR_2_63 + b"\0\1\1\0", first_timestamp=1),
        "a timestamp out of range",
        11,
    ),
    "offset delta negative": (one(b"\0\0" + varint(-1) + b"\1\1\0"), "an offset outside", 11),
    "offset delta too large": (one(b"\0\0" + varint(1) + b"\1\1\0"), "an offset outside", 11),
    "key length -2": (one(FIELDS + MINUS_TWO + b"\1\0"), "a negative key length", 11),
    "key length huge": (one(FIELDS + varint(2**31 - 1) + b"\1\0"), "a field that is cut off", 11),
    "key length near 2^63": (one(FIELDS + NEAR_2_63 + b"\1\0"), "a varint longer", 11),
    "value length -2": (one(FIELDS + b"\1" + MINUS_TWO + b"\0"), "a negative value length", 11),
    "value length huge": (one(FIELDS + b"\1" + varint(2**31 - 1) + b"\0"), "that is cut off", 11),
    "header count huge": (one(FIELDS + b"\1\1" + varint(2**31 - 1)), "more headers than fit", 11),
    "header count negative": (
        one(FIELDS + b"\1\1" + varint(-1)),
        "a negative number of headers",
        11,
    ),
    "header key length -1": (one(FIELDS + b"\1\1\2\1\1"), "a negative header key length", 11),
    "header key length -2": (one(FIELDS + b"\1\1\2\3\1"), "a negative header key length", 11),
    "header key not UTF-8": (one(FIELDS + b"\1\1\2\2\xff\0"), "a header key that is not UTF-8", 11),
    "header value length -2": (one(FIELDS + b"\1\1\2\2a\3"), "a negative header value length", 11),
    "header value cut": (one(FIELDS + b"\1\1\2\2a\x7e"), "a field that is cut off", 11),
    "header missing": (one(FIELDS + b"\1\1\4\2a\0"), "more headers than fit the record", 11),
    "record longer than its fields": (one(FIELDS + b"\1\1\0junk"), "does not match its fields", 11),
    "bad gzip": (batch(b"junk" * 9, base=10, codec=1, count=1), "bad gzip data", 11),
    "bad snappy": (batch(b"\xffjunk" * 9, base=10, codec=2, count=1), "bad snappy data", 11),
    "bad xerial block": (
        batch(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\x7f\xff\xff\xffjunk", base=10, codec=2, count=1),
        "bad snappy data",
        11,
    ),
    "bad lz4": (batch(b"junk" * 9, base=10, codec=3, count=1), "bad lz4 data", 11),
    "bad zstd": (batch(b"junk" * 9, base=10, codec=4, count=1), "bad zstd data", 11),
    "empty gzip": (batch(b"", base=10, codec=1, count=1), "bad gzip data", 11),
    "empty snappy": (batch(b"", base=10, codec=2, count=1), "bad snappy data", 11),
    "empty lz4": (batch(b"", base=10, codec=3, count=1), "bad lz4 data", 11),
    "empty zstd": (batch(b"", base=10, codec=4, count=1), "bad zstd data", 11),
    "bomb of gzip": (
        batch(compress(1, BOMB), base=10, codec=1, count=1),
        "gzip data of 8388608 bytes, more than `max_decompressed_bytes`",
        11,
    ),
    "bomb of snappy": (
        batch(compress(2, BOMB), base=10, codec=2, count=1),
        "snappy data of 8388608 bytes, more than `max_decompressed_bytes`",
        11,
    ),
    "bomb of lz4": (
        batch(compress(3, BOMB), base=10, codec=3, count=1),
        "max_decompressed_bytes",
        11,
    ),
    "bomb of zstd": (
        batch(compress(4, BOMB), base=10, codec=4, count=1),
        "max_decompressed_bytes",
        11,
    ),
    "gzip cut short": (
        batch(compress(1, b"".join(map(record, rows(9))))[:-9], base=10, codec=1, count=9, delta=9),
        "bad gzip data",
        20,
    ),
    "negative offset": (
        cut(batch(rows(1)), 0, to=b"\xff" * 8),
        "a negative offset",
        None,
    ),
    "old message, bad checksum": (message(10, crc=1), "its checksum does not match", 11),
    "old message, key length -2": (
        entry(10, struct.pack(">bbii", 0, 0, -2, -1)),
        "a negative key length",
        11,
    ),
    "old message, value length huge": (
        entry(10, struct.pack(">bbii", 0, 0, -1, 2**31 - 1)),
        "a field that is cut off",
        11,
    ),
    "old wrapper without a value": (message(10, None, attributes=1), "without a value", 11),
    "old wrapper of nothing": (wrapper(b"", 10), "an empty compressed message set", 11),
    "old wrapper, cut": (wrapper(message(0)[:-1], 10), "ends in the middle", 11),
    "old wrapper, other magic": (
        wrapper(message(0, b"x" * 20, magic=0), 10),
        "magic 0 inside",
        11,
    ),
    "old wrapper in a wrapper": (wrapper(wrapper(message(0), 0), 10), "compression inside", 11),
    "old wrapper, bad offsets": (wrapper(message(99), 10), "offsets do not match", 11),
    "old wrapper of zstd": (wrapper(message(0), 10, codec=4), "unknown compression codec 4", 11),
    "old offset 2^63-1": (message(2**63 - 1), "an offset out of range", None),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_input_is_a_single_typed_error(decoder: ModuleType, name: str) -> None:
    data, reason, resume = BAD[name]
    records = read(decoder, GOOD + data, max_decompressed_bytes=1 << 20)
    with pytest.raises(CorruptRecords) as caught:
        list(records)
    error = caught.value
    assert reason in error.reason
    assert (error.topic, error.partition, error.resume) == ("t", 1, resume)
    assert error.offset >= 10
    with pytest.raises(CorruptRecords) as again:
        next(records)
    assert again.value is error


@pytest.mark.parametrize("name", BAD)
def test_records_before_invalid_input_are_delivered(decoder: ModuleType, name: str) -> None:
    records = read(decoder, GOOD + BAD[name][0], max_decompressed_bytes=1 << 20)
    assert [next(records).offset for _ in range(10)] == list(range(10))
    with pytest.raises(CorruptRecords):
        list(records)
    assert 10 <= records.next_offset <= 12  # a batch with too many bytes is valid up to them


def test_a_corrupt_record_inside_a_batch_stops_at_its_offset(decoder: ModuleType) -> None:
    body = b"".join(record(row, 0, row.timestamp) for row in rows(5)) + framed(b"\0\0\x0a\3\1\0")
    records = read(decoder, batch(body, count=6, delta=5))
    assert [next(records).offset for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptRecords, match="negative key length") as caught:
        next(records)
    assert (caught.value.offset, caught.value.resume, records.next_offset) == (5, 6, 5)


def test_the_error_has_partition_offset_reason_and_advice(decoder: ModuleType) -> None:
    with pytest.raises(ConsumerError) as caught:
        list(read(decoder, batch(rows(3, 10), crc=1)))
    assert str(caught.value) == (
        "corrupt records in t[1] at offset 10: its checksum does not match. To skip them, "
        "read from offset 13, or restore the partition from a good replica"
    )
    with pytest.raises(ConsumerError, match="choose a later offset"):
        list(read(decoder, batch(rows(3, 10), magic=9)))


def test_the_error_survives_pickling() -> None:
    error = CorruptRecords("t", 1, 10, "it is bad", 13)
    again = pickle.loads(pickle.dumps(error))  # noqa: TID251 - the package's own
    assert (str(again), again.resume) == (str(error), 13)


def test_the_error_names_the_requested_offset_inside_a_batch(decoder: ModuleType) -> None:
    with pytest.raises(CorruptRecords) as caught:
        list(read(decoder, batch(rows(9, 10), crc=1), offset=15))
    assert caught.value.offset == 15


def test_batches_after_a_corrupt_batch_can_be_read(decoder: ModuleType) -> None:
    records = read(decoder, GOOD + batch(rows(5, 10), crc=1) + batch(rows(2, 15)) + b"\0" * 5)
    with pytest.raises(CorruptRecords):
        list(records)
    assert records.skip_corrupt() == 15
    assert [f.offset for f in records] == [15, 16]
    assert records.next_offset == 17


def test_a_corrupt_last_batch_is_skipped_by_its_header(decoder: ModuleType) -> None:
    records = read(
        decoder, batch(rows(5, 10), codec=4, count=9, delta=8)[:-1] + b"\0", check_crc=False
    )
    with pytest.raises(CorruptRecords):
        list(records)
    assert records.skip_corrupt() == 19
    assert list(records) == []
    assert records.next_offset == 19


def test_a_corrupt_batch_with_an_unknown_end_is_not_skipped(decoder: ModuleType) -> None:
    records = read(decoder, batch(rows(1), magic=9))
    with pytest.raises(CorruptRecords) as caught:
        list(records)
    with pytest.raises(CorruptRecords) as again:
        records.skip_corrupt()
    assert again.value is caught.value
    assert records.next_offset == 0


def test_any_changed_byte_of_a_batch_causes_typed_errors_only(decoder: ModuleType) -> None:
    """The checksum is ignored, so that corrupt bytes reach every check."""
    good = batch([Row(0, b"v" * 20, b"k", headers=(("a", b"1"), ("b", None))), Row(1, None, None)])
    for offset in range(len(good)):
        for byte in (0, 1, 3, 0x7F, 0x80, 0xFF):
            data = cut(good, offset, to=bytes([byte]))
            with contextlib.suppress(CorruptRecords):
                list(read(decoder, data, check_crc=False, aborted=[(0, 0)]))


def test_the_number_of_headers_of_a_record_is_limited(decoder: ModuleType) -> None:
    """Each header of two bytes becomes three objects, so a megabyte would take a hundred."""
    for count in (2**16, 2**16 + 1):
        fields = b"\0\0\0" + b"\1\1" + varint(count) + b"\0\1" * count
        body = compress(1, varint(len(fields)) + fields)
        records = read(decoder, batch(body, codec=1, count=1))
        if count == 2**16:
            (record,) = records
            assert record.headers == (("", None),) * count
        else:
            with pytest.raises(CorruptRecords, match="a record with more than 65536 headers"):
                next(records)
