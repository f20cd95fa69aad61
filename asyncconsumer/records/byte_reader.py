"""A reader of untrusted bytes with bounds checks. Invalid bytes raise `DecodeError`."""

from struct import Struct
from typing import Final, NoReturn

CUT: Final = "a field that is cut off"
LONG_VARINT: Final = "a varint longer than its type allows"
INT_16: Final = Struct(">h")
INT_32: Final = Struct(">i")
INT_64: Final = Struct(">q")
MOST: Final = 2**63 - 1


class DecodeError(Exception):
    """An error for bytes that violate the record format.

    `reason` describes the error. `resume` is the first offset after the invalid bytes, or None if
    it is not known.
    """

    def __init__(self, reason: str, resume: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.resume = resume


def varint(data: bytes, position: int, end: int, bits: int) -> tuple[int, int]:
    """Read an unsigned varint of up to `bits` bits, before the position `end`.

    Return its value and the position after it.
    """
    value = 0
    for shift in range(0, bits, 7):
        if position >= end:
            raise DecodeError(CUT)
        byte = data[position]
        position += 1
        if byte >> (bits - shift):
            raise DecodeError(LONG_VARINT)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError(LONG_VARINT)


class ByteReader:
    """A reader of varints and byte strings that checks every bound.

    It is slow, and used only for data that a faster reader has failed to read.
    """

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def signed(self, bits: int = 32) -> int:
        """Read a zigzag varint of up to `bits` bits."""
        value, self.position = varint(self.data, self.position, self.end, bits)
        return value >> 1 ^ -(value & 1)

    def sized(self, field: str, length: int) -> bytes | None:
        """Read `length` bytes. Return None for a length of -1. `field` is the name in errors."""
        if length < -1:
            fail(f"a negative {field} length")
        if length > self.end - self.position:
            fail(CUT)
        if length < 0:
            return None
        self.position += length
        return self.data[self.position - length : self.position]


def fail(reason: str) -> NoReturn:
    """Raise `DecodeError` with this reason."""
    raise DecodeError(reason)
