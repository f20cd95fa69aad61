"""The decoder for record batches of magic 2, in pure Python."""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from asyncconsumer.records.byte_reader import (
    CUT,
    INT_16,
    MOST,
    ByteReader,
    DecodeError,
    fail,
    varint,
)
from asyncconsumer.records.record import Headers

HEAD: Final = 61  # bytes before the records
_LEAST_RECORD: Final = 7
_LEAST_HEADER: Final = 2
_MOST_HEADERS: Final = 1 << 16  # headers of one record: every two bytes could become three objects
_LAST_CODEC: Final = 4
_FIELDS: Final = Struct(">qiibIhiqqqhii")

Fields = tuple[int, int, int, bytes | None, bytes | None, Headers, int]
"""A record: offset, next offset, timestamp, key, value, headers, and its end in the body."""


class BatchHeader(NamedTuple):
    """The fields of a record batch header that the decoder needs. They are not validated."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    base_timestamp: int  # with `append_time` the timestamp of every record
    append_time: bool
    codec: int
    transactional: bool
    control: bool
    producer: int
    records: int

    @property
    def is_possible(self) -> bool:
        """Whether the offsets in the header are possible offsets of a partition."""
        return self.base_offset <= self.last_offset < MOST

    @property
    def end(self) -> int | None:
        """The offset after the batch, or None if the header's fields contradict each other."""
        end = self.base_offset + self.records
        return end if self.base_offset <= self.last_offset == end - 1 < MOST else None


def read_header(entry: bytes) -> BatchHeader:
    """Return the header of the record batch `entry`."""
    base, _, epoch, _, crc, attributes, delta, first, latest, producer, _, _, count = (
        _FIELDS.unpack_from(entry)
    )
    return BatchHeader(
        base,
        base + delta,
        epoch,
        crc,
        latest if attributes & 8 else first,
        bool(attributes & 8),
        attributes & 7,
        bool(attributes & 0x10),
        bool(attributes & 0x20),
        producer,
        count,
    )


Inflate = Callable[[int, bytes, int], bytes]
"""A function of codec, compressed data and the offset to resume at if the data is bad."""


def read_body(batch: BatchHeader, body: bytes, inflate: Inflate) -> bytes:
    """Return the decompressed body of a record batch.

    `body` is the data after the batch header. `inflate` decompresses it. Raise DecodeError if the
    body is too small for the record count in the header.
    """
    resume = batch.last_offset + 1
    if batch.codec > _LAST_CODEC:
        raise DecodeError(f"unknown compression codec {batch.codec}", resume)
    if batch.codec and batch.records:
        body = inflate(batch.codec, body, resume)
    if batch.records > len(body) // _LEAST_RECORD:
        reason = f"a record count of {batch.records} that does not fit its {len(body)} bytes"
        raise DecodeError(reason, resume)
    return body


def is_abort_marker(batch: BatchHeader, body: bytes) -> bool:
    """Return whether the control batch `batch` ends an aborted transaction."""
    if batch.records == 0:
        return False
    key = _read_exactly(batch, body, 0)[3]
    if key is None or len(key) < 4:
        raise record_damage(DecodeError("a control key that is too short"), batch.last_offset)
    return bool(INT_16.unpack_from(key, 2)[0] == 0)


def record_after(body: bytes, position: int) -> int | None:
    """Return the position after the record at `position`, or None if its length is not valid."""
    try:
        value, position = varint(body, position, len(body), 32)
    except DecodeError:
        return None
    return None if value & 1 or (value >> 1) > len(body) - position else position + (value >> 1)


class BodyPart(NamedTuple):
    """A part of the decompressed body of a record batch.

    It consists of the data, the position of the data in the whole body, and the size of the whole
    body.
    """

    data: bytes
    start: int
    whole: int

    @property
    def goes_to_the_end(self) -> bool:
        """Whether the part includes the last byte of the decompressed body."""
        return self.start + len(self.data) == self.whole


def read_records(batch: BatchHeader, part: BodyPart, start: int, count: int) -> Iterator[Fields]:
    """Yield the records in a part of a decompressed body, from position `start` on.

    `start` is a position in the whole body, and `count` records come before it. Each record is
    first read without checks. If that fails, it is read again with all checks.
    """
    body, position, size = part.data, start - part.start, len(part.data)
    windowed = not part.goes_to_the_end
    base, largest = batch.base_offset, batch.last_offset - batch.base_offset
    first, append_time = batch.base_timestamp, batch.append_time
    for remaining in range(batch.records - 1 - count, -1, -1):
        if windowed and position == size:
            return
        try:
            end, moment, delta, key, value, headers = _read_usual(body, position)
            timestamp = first if append_time else first + moment
            usual = end <= size and delta <= largest and -MOST <= timestamp <= MOST
        except (IndexError, DecodeError):
            usual = False
        if usual:
            position, offset = end, base + delta
        else:
            position, offset, timestamp, key, value, headers = _read_exactly(batch, body, position)
        is_end = (
            remaining == 0 and position == size
        )  # `after` then passes the offsets that compaction removed at the end
        after = (batch.last_offset if is_end and not windowed else offset) + 1
        yield offset, after, timestamp, key, value, headers, part.start + position
    if position != size and not windowed:
        raise DecodeError(f"{size - position} bytes after its last record", batch.last_offset + 1)


_Parts = tuple[int, int, int, bytes | None, bytes | None, Headers]


def _read_usual(body: bytes, position: int) -> _Parts:
    """Read one record without checks.

    If this raises an exception, the caller reads the record again with all checks.
    """
    number, position = body[position], position + 1
    if number > 127:
        number, position = varint(body, position - 1, position + 4, 32)
    end = position + (number >> 1)
    moment, position = body[position + 1], position + 2  # after the byte of the attributes
    if moment > 127:
        moment, position = varint(body, position - 1, end, 64)
    delta, position = body[position], position + 1
    if delta > 127:
        delta, position = varint(body, position - 1, end, 32)
    length, position = body[position], position + 1
    if length > 127:
        length, position = varint(body, position - 1, end, 32)
    key = value = None
    odd = number | delta
    if length != 1:  # -1, null
        odd |= length
        key, position = body[position : position + (length >> 1)], position + (length >> 1)
    length, position = body[position], position + 1
    if length > 127:
        length, position = varint(body, position - 1, end, 32)
    if length != 1:
        odd |= length
        value, position = body[position : position + (length >> 1)], position + (length >> 1)
    headers: Headers = ()
    if body[position]:
        headers, position = _read_headers(body, position, end)
    else:
        position += 1
    if odd & 1 or position != end:
        raise IndexError("negative, or not as long as it says")
    return end, moment >> 1 ^ -(moment & 1), delta >> 1, key, value, headers


def _read_headers(body: bytes, position: int, end: int) -> tuple[Headers, int]:
    reader = ByteReader(body, position, end)
    return _headers(reader), reader.position


def _headers(reader: ByteReader) -> Headers:
    count = reader.signed()
    if count < 0:
        fail("a negative number of headers")
    if count > (reader.end - reader.position) // _LEAST_HEADER:
        fail("more headers than fit the record")
    if count > _MOST_HEADERS:
        fail(f"more than {_MOST_HEADERS} headers")
    pairs = []
    for _ in range(count):
        name = reader.sized("header key", reader.signed())
        if name is None:
            fail("a negative header key length")
        try:
            text = name.decode()
        except UnicodeDecodeError:
            fail("a header key that is not UTF-8")
        pairs.append((text, reader.sized("header value", reader.signed())))
    return tuple(pairs)


def _read_exactly(batch: BatchHeader, body: bytes, position: int) -> _Parts:
    """Read one record with all checks.

    The checks have the same order as those of the C decoder, so that both report the same error.
    """
    try:
        return _read_carefully(batch, ByteReader(body, position, len(body)))
    except DecodeError as damage:
        raise record_damage(damage, batch.last_offset) from None


def record_damage(damage: DecodeError, last_offset: int) -> DecodeError:
    """Return the error for a corrupt record. Its `resume` is the offset after the record batch.

    `damage` is the error that was found in the record. `last_offset` is the last offset of the
    batch.
    """
    return DecodeError(f"a record with {damage.reason}", last_offset + 1)


def _read_carefully(batch: BatchHeader, reader: ByteReader) -> _Parts:
    length = reader.signed()
    if length < 0:
        fail("a negative length")
    if length > reader.end - reader.position:
        fail("a length that goes beyond its batch")
    reader.end = reader.position + length
    if length == 0:
        fail(CUT)
    reader.position += 1
    moment, delta = reader.signed(64), reader.signed()
    key = reader.sized("key", reader.signed())
    value = reader.sized("value", reader.signed())
    headers = _headers(reader)
    if reader.position != reader.end:
        fail("a length that does not match its fields")
    if not 0 <= delta <= batch.last_offset - batch.base_offset:
        fail("an offset outside its batch")
    timestamp = batch.base_timestamp if batch.append_time else batch.base_timestamp + moment
    if not -MOST - 1 <= timestamp <= MOST:
        fail("a timestamp out of range")
    return reader.end, batch.base_offset + delta, timestamp, key, value, headers
