"""An encoder of record sets, which can also write wrong values of each field."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import cramjam

from asyncconsumer.records.checksum import crc32c

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Row(NamedTuple):
    """A record as tests write and expect it."""

    offset: int
    value: bytes | None = b"value"
    key: bytes | None = b"key"
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


def rows(count: int, first: int = 0, size: int = 100) -> list[Row]:
    return [
        Row(first + i, (b"%d " % i * size)[:size], b"key-%06d" % i, 1_700_000_000_000 + i)
        for i in range(count)
    ]


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(row: Row, base: int = 0, timestamp: int = 0) -> bytes:
    body = b"\0" + varint(row.timestamp - timestamp) + varint(row.offset - base)
    body += sized(row.key) + sized(row.value) + varint(len(row.headers))
    for name, value in row.headers:
        body += sized(name.encode()) + sized(value)
    return varint(len(body)) + body


def compress(codec: int, data: bytes) -> bytes:
    if codec == 1:
        return gzip.compress(data)
    if codec == 2:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec in (3, 4):
        return bytes((cramjam.lz4 if codec == 3 else cramjam.zstd).compress(data))
    return data


def xerial(data: bytes, block: int = 32 * 1024) -> bytes:
    """Return data compressed with Snappy in the format of Java clients."""
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for offset in range(0, len(data), block):
        part = bytes(cramjam.snappy.compress_raw(data[offset : offset + block]))
        out += struct.pack(">i", len(part)) + part
    return out


HEADER = struct.Struct(">hiqqqhii")


def batch(
    content: Sequence[Row] | bytes,
    *,
    base: int | None = None,
    codec: int = 0,
    magic: int = 2,
    epoch: int = 0,
    attributes: int = 0,
    first_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer: int = -1,
    **wrong: int,
) -> bytes:
    """Return a batch of magic 2. `content` is rows or the body; `wrong` replaces header fields."""
    listed: Sequence[Row] = [] if isinstance(content, bytes) else content
    base = (listed[0].offset if listed else 0) if base is None else base
    times = [row.timestamp for row in listed] or [0]
    first = times[0] if first_timestamp is None else first_timestamp
    if isinstance(content, bytes):
        body = content
    else:
        body = compress(codec, b"".join(record(row, base, first) for row in listed))
    last = listed[-1].offset - base if listed else 0
    tail = HEADER.pack(
        attributes | codec,
        wrong.get("delta", last),
        first,
        max(times) if max_timestamp is None else max_timestamp,
        producer,
        0,
        0,
        wrong.get("count", len(listed)),
    )
    tail += body
    crc = wrong.get("crc", crc32c(tail))
    length = wrong.get("length", len(tail) + 9)
    return struct.pack(">qiibI", base, length, epoch, magic, crc) + tail


def control(offset: int, producer: int, kind: int, key: bytes | None = None) -> bytes:
    """Return a transaction marker: 0 aborts, 1 commits."""
    key = struct.pack(">hh", 0, kind) if key is None else key
    marker = Row(offset, struct.pack(">hi", 0, 0), key)
    return batch([marker], attributes=0x30, producer=producer)


def message(
    offset: int,
    value: bytes | None = b"value",
    *,
    key: bytes | None = b"key",
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 1_700_000_000_000,
    crc: int | None = None,
) -> bytes:
    """Return a message of magic 0 or 1."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for data in (key, value):
        body += struct.pack(">i", -1 if data is None else len(data)) + (data or b"")
    return entry(offset, body, crc)


def entry(offset: int, body: bytes, crc: int | None = None) -> bytes:
    """Return a message of magic 0 or 1 with the given bytes after the checksum."""
    crc = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4, crc) + body


def wrapper(
    inner: bytes,
    offset: int,
    *,
    codec: int = 1,
    magic: int = 1,
    value: bytes | None = None,
    attributes: int = 0,
    timestamp: int = 0,
) -> bytes:
    """Return a compressed message set in a message. `value` replaces the compressed bytes."""
    return message(
        offset,
        compress(codec, inner) if value is None else value,
        key=None,
        magic=magic,
        attributes=codec | attributes,
        timestamp=timestamp,
    )
