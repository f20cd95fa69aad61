"""Reading bytes that we did not write: what does not hold is Damage, with a reason in words."""

from struct import Struct
from typing import Final, NoReturn

CUT: Final = "it ends in the middle of a field"
LONG_VARINT: Final = "a varint is longer than its type allows"
INT_16: Final = Struct(">h")
INT_32: Final = Struct(">i")
INT_64: Final = Struct(">q")
MOST: Final = 2**63 - 1


class DecodeError(Exception):
    """What is wrong with the bytes, and the first offset behind them where that is known."""

    def __init__(self, reason: str, resume: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.resume = resume


def varint(data: bytes, at: int, end: int, bits: int) -> tuple[int, int]:
    """An unsigned varint of at most `bits` bits, and the place behind it."""
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
    """A cursor that never leaves its bytes. Exact and slow: used where something looks wrong."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def signed(self, bits: int = 32) -> int:
        """A zigzag varint."""
        value, self.at = varint(self.data, self.at, self.end, bits)
        return value >> 1 ^ -(value & 1)

    def sized(self, what: str, length: int) -> bytes | None:
        """That many bytes; -1 is None."""
        if length < -1:
            fail(f"a negative {what} length")
        if length > self.end - self.at:
            fail(CUT)
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]


def fail(reason: str) -> NoReturn:
    """Raise Damage."""
    raise DecodeError(reason)
