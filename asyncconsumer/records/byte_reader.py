"""Checked reading of untrusted bytes. Bytes that are not valid raise `DecodeError`."""

from struct import Struct
from typing import Final, NoReturn

CUT: Final = "it ends in the middle of a field"
LONG_VARINT: Final = "a varint is longer than its type allows"
INT_16: Final = Struct(">h")
INT_32: Final = Struct(">i")
INT_64: Final = Struct(">q")
MOST: Final = 2**63 - 1


class DecodeError(Exception):
    """An error in the bytes: its reason, and the first offset after them if it is known."""

    def __init__(self, reason: str, resume: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.resume = resume


def varint(data: bytes, at: int, end: int, bits: int) -> tuple[int, int]:
    """Return an unsigned varint of at most `bits` bits and the position after it."""
    value = 0
    for shift in range(0, bits, 7):
        if at >= end:
            raise DecodeError(CUT)
        byte = data[at]
        at += 1
        if byte >> (bits - shift):
            raise DecodeError(LONG_VARINT)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise DecodeError(LONG_VARINT)


class ByteReader:
    """A reader that checks every bound. It is slow, and only used where a fast way failed."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def signed(self, bits: int = 32) -> int:
        """Read a zigzag varint."""
        value, self.at = varint(self.data, self.at, self.end, bits)
        return value >> 1 ^ -(value & 1)

    def sized(self, what: str, length: int) -> bytes | None:
        """Read `length` bytes; return None for a length of -1."""
        if length < -1:
            fail(f"a negative {what} length")
        if length > self.end - self.at:
            fail(CUT)
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]


def fail(reason: str) -> NoReturn:
    """Raise `DecodeError`."""
    raise DecodeError(reason)
