"""The conversion of records to the buffers of Arrow arrays, in pure Python.

`records.arrow` uses it if the decoder is not compiled.
"""

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from asyncconsumer.records.record import Record

BytesBuffers = tuple[bytes | None, int, bytes, bytes]
"""A binary column: validity bits or None, number of nulls, offsets or views, data."""
TableBuffers = tuple[
    int,
    bytes,
    bytes,
    bytes,
    BytesBuffers,
    BytesBuffers,
    bytes,
    BytesBuffers,
    BytesBuffers,
    list[object],
]

_OFFSET, _TIMESTAMP, _TIMESTAMP_TYPE, _KEY, _VALUE, _HEADERS, AS_VIEWS = 1, 2, 4, 8, 16, 32, 64
_INLINE: Final = 12
_SHORT_VIEW: Final = struct.Struct("<i12s")
_LONG_VIEW: Final = struct.Struct("<i4sii")
_LEAST, _MOST = -(2**63), 2**63 - 1


def table_of(rows: Sequence[Record], flags: int, scale: int) -> TableBuffers:
    """Return the buffers of the columns whose bits are set in `flags`. Other columns are empty.

    A timestamp in ms is multiplied by `scale`.
    """

    def having(flag: int) -> Sequence[Record]:
        return rows if flags & flag else ()

    bytes_of = _viewed if flags & AS_VIEWS else _copied
    pairs = [pair for row in having(_HEADERS) for pair in row.headers]
    lists = accumulate((len(row.headers) for row in having(_HEADERS)), initial=0)
    times = (max(_LEAST, min(_MOST, row.timestamp * scale)) for row in having(_TIMESTAMP))
    return (
        len(rows),
        array("q", (row.offset for row in having(_OFFSET))).tobytes(),
        array("q", times).tobytes(),
        array("i", (row.timestamp_type for row in having(_TIMESTAMP_TYPE))).tobytes(),
        bytes_of([row.key for row in having(_KEY)]),
        bytes_of([row.value for row in having(_VALUE)]),
        array("i", lists).tobytes(),
        _copied([name.encode() for name, _ in pairs]),
        _copied([value for _, value in pairs]),
        [],
    )


def sizes_of(row: Record) -> tuple[int, int, int]:
    """Return how many bytes a record adds to the columns of keys, of values and of headers."""
    headers = sum(len(name.encode()) + len(value or b"") for name, value in row.headers)
    return len(row.key or b""), len(row.value or b""), headers


def _valid(values: Sequence[bytes | None]) -> tuple[bytes | None, int]:
    nulls = sum(value is None for value in values)
    if not nulls:
        return None, 0
    bits = sum(1 << i for i, value in enumerate(values) if value is not None)
    return bits.to_bytes((len(values) + 7) // 8, "little"), nulls


def _copied(values: Sequence[bytes | None]) -> BytesBuffers:
    data = b"".join(value or b"" for value in values)
    ends = accumulate((len(value or b"") for value in values), initial=0)
    return *_valid(values), array("i", ends).tobytes(), data


def _viewed(values: Sequence[bytes | None]) -> BytesBuffers:
    """Return Arrow views of the values, and a new buffer with the bytes that they refer to.

    The records of the pure-Python decoder keep no buffer to which views could refer.
    """
    data, views = bytearray(), bytearray()
    for value in values:
        known = value or b""
        if len(known) <= _INLINE:
            views += _SHORT_VIEW.pack(len(known), known)
        else:
            views += _LONG_VIEW.pack(len(known), known[:4], 0, len(data))
            data += known
    return *_valid(values), bytes(views), bytes(data)
