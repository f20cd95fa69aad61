"""The metadata text of a commit, which lists records processed after the committed offset.

The text is a version and base64 data: a byte for the encoding, the committed offset, and the ranges
of processed offsets. The ranges are either a bitmap, or the lengths of the ranges and of the gaps
between them, whichever is shorter. They are compressed if that makes them shorter still.

Brokers accept 4,096 bytes by default (`offset.metadata.max.bytes`). Ranges that do not fit are left
out, and their records are processed again after a restart.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from asyncconsumer.types import Offset

Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Half-open ranges of offsets, in order, which neither overlap nor touch."""

LONGEST: Final = 3_500

_VERSION: Final = "asyncconsumer:1:"
_RUNS, _BITS, _DEFLATED = 0, 1, 2  # `_DEFLATED` is added to either of the others
_MOST_RANGES: Final = 4_096  # the maximum of ranges in one text
_MOST_BYTES: Final = 2**16  # the maximum size of a text after decompression


class OffsetWithRanges(Offset):
    """An offset to commit, whose metadata lists ranges of processed offsets."""

    def within(self, longest: int) -> Offset:
        """Return this offset with as many of the first ranges as fit into `longest` characters."""
        text = self.metadata
        if len(text) <= longest:
            return self
        shorter = encode(self, decode(self, text), longest)
        return OffsetWithRanges(self, leader_epoch=self.leader_epoch, metadata=shorter)


def encode(base: int, ranges: Ranges, limit: int = LONGEST) -> str:
    """Return the metadata text for ranges above the offset `base`.

    The text has as many of the first ranges as fit into `limit` characters. If none fits, it is
    empty.
    """
    fits, too_many = 0, min(len(ranges), _MOST_RANGES) + 1
    best = ""
    count = too_many - 1  # first try all of them, then bisect
    while fits < count < too_many:
        text = _written(base, ranges[:count])
        if len(text) <= limit:
            fits, best = count, text
        else:
            too_many = count
        count = (fits + too_many) // 2
    return best


def decode(base: int, text: str) -> Ranges:
    """Return the ranges in the metadata text of a commit of the offset `base`.

    Return no ranges if another program wrote the text, if it is corrupt, or if it belongs to
    another offset.
    """
    if not text.startswith(_VERSION):
        return ()
    try:
        data = base64.b64decode(text.removeprefix(_VERSION), validate=True)
        kind, body = data[0], data[1:]
        if kind & _DEFLATED:
            body = _inflated(body)
        numbers = _Numbers(body)
        if next(numbers) != base:
            return ()  # text of another commit
        return list(_runs(base, numbers) if kind & 1 == _RUNS else _bits(base, numbers.rest()))
    except (binascii.Error, zlib.error, IndexError, ValueError, StopIteration):
        return ()


def _written(base: int, ranges: Ranges) -> str:
    lengths = bytearray()
    position = base
    for start, stop in ranges:
        lengths += _varint(start - position) + _varint(stop - start)
        position = stop
    bodies = [(_RUNS, bytes(lengths))]
    if position - base <= _MOST_BYTES * 4:
        bits = 0
        for start, stop in ranges:
            bits |= ((1 << (stop - start)) - 1) << (start - base)
        bodies.append((_BITS, bits.to_bytes((bits.bit_length() + 7) // 8, "little")))
    kind, body = min(bodies, key=lambda encoding: len(encoding[1]))
    plain = _varint(base) + body
    deflated = zlib.compress(plain, 1)
    if len(deflated) < len(plain) <= _MOST_BYTES:
        kind, plain = kind | _DEFLATED, deflated
    return _VERSION + base64.b64encode(bytes((kind,)) + plain).decode("ascii")


def _inflated(body: bytes) -> bytes:
    inflating = zlib.decompressobj()
    data = inflating.decompress(body, _MOST_BYTES)
    if not inflating.eof:
        raise ValueError(f"the ranges have more than {_MOST_BYTES} bytes")
    return data


def _runs(base: int, numbers: Iterator[int]) -> Iterator[tuple[int, int]]:
    position = base
    for gap in numbers:
        start = position + gap
        position = start + next(numbers, 0)
        if position <= start or position >= 2**63:
            raise ValueError(f"the range from {start} to {position} is empty or too long")
        yield start, position


def _bits(base: int, data: bytes) -> Iterator[tuple[int, int]]:
    digits = f"{int.from_bytes(data, 'little'):b}"[::-1]
    start = digits.find("1")
    while start >= 0:
        stop = digits.find("0", start)
        stop = len(digits) if stop < 0 else stop
        yield base + start, base + stop
        start = digits.find("1", stop)


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


class _Numbers:
    """An iterator over consecutive varints in bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._index = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self._index == len(self._data):
            raise StopIteration
        number = shift = 0
        while True:
            byte = self._data[self._index]
            self._index += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a varint has more than 10 bytes")

    def rest(self) -> bytes:
        """Return the bytes after the varints that were read."""
        return self._data[self._index :]


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges without empty ranges. Merge ranges that overlap or touch.

    The ranges must be ordered by their starts.
    """
    whole: list[tuple[int, int]] = []
    for start, stop in ranges:
        if whole and start <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(stop, whole[-1][1])
        elif start < stop:
            whole.append((start, stop))
    return whole
