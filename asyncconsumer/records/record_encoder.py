"""The encoder of the records in a record batch, in pure Python."""

from collections.abc import Sequence
from typing import Final

from asyncconsumer.records.record import Headers

_MAX_BYTES: Final = 2**31 - 1 - 128


class RecordEncoder:
    """An encoder of the records of one record batch. Records are appended one by one."""

    __slots__ = ("_data", "count", "first_timestamp", "max_timestamp")

    def __init__(self) -> None:
        self._data = bytearray()
        self.count = 0
        self.first_timestamp = -1
        self.max_timestamp = -1

    @property
    def size(self) -> int:
        """The total size of the encoded records in bytes."""
        return len(self._data)

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | Sequence[tuple[str, bytes | None]],
        /,
    ) -> int:
        """Encode one more record. Return the total size of all records in bytes.

        Raise TypeError or ValueError for a value of a wrong type or size.
        """
        if not isinstance(timestamp_ms, int):
            raise TypeError(
                f"'{type(timestamp_ms).__name__}' object cannot be interpreted as an integer"
            )
        key_part, value_part = _part(key, "key"), _part(value, "value")
        if timestamp_ms < 0:
            raise ValueError(f"timestamp_ms must not be negative, got {timestamp_ms}")
        delta = timestamp_ms - self.first_timestamp if self.count else 0
        record = b"".join(
            (b"\0", _varint(delta), _varint(self.count), key_part, value_part, _headers(headers))
        )
        if len(record) > _MAX_BYTES - len(self._data):
            raise ValueError("the records of a batch are larger than 2 GiB")
        self._data += _varint(len(record)) + record
        if self.count == 0:
            self.first_timestamp = timestamp_ms
        self.max_timestamp = max(self.max_timestamp, timestamp_ms)
        self.count += 1
        return len(self._data)

    def body(self) -> bytes:
        """Return the encoded records."""
        return bytes(self._data)


def _varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    data = bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    data.append(rest)
    return bytes(data)


def _part(part: bytes | None, name: str) -> bytes:
    if part is None:
        return b"\1"  # a length of -1
    if not isinstance(part, bytes):
        raise TypeError(f"{name} must be bytes or None, not {type(part).__name__}")
    return _varint(len(part)) + part


def _headers(headers: object) -> bytes:
    if not isinstance(headers, tuple | list):
        raise TypeError(f"headers must be a tuple or a list, not {type(headers).__name__}")
    parts = [_varint(len(headers))]
    for header in headers:
        if not isinstance(header, tuple) or len(header) != 2 or not isinstance(header[0], str):
            raise TypeError("a header must be a tuple of a name and bytes or None")
        name, value = header
        parts += _part(name.encode(), "name"), _part(value, "the value of a header")
    return b"".join(parts)
