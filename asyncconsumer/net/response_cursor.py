"""A cursor over a response body that is too large to decode in one go."""

from struct import Struct, unpack_from
from typing import Final, NoReturn

from asyncconsumer.errors import MalformedResponse

_INT_16: Final = Struct(">h")
_INT_32: Final = Struct(">i")
TRUNCATED: Final = "it ends in the middle of a field"


class ResponseCursor:
    """A reader of single fields of a response, in the encoding of its version.

    Each read advances `position`. A read beyond the end raises `IndexError`, `struct.error` or
    `MalformedResponse`.
    """

    __slots__ = ("_api", "_flexible", "data", "position", "version")

    def __init__(self, api: str, data: bytes, version: int, *, flexible: bool) -> None:
        self.data = data
        self.version = version
        self.position = 0
        self._api = api
        self._flexible = flexible

    def part(self, start: int) -> "ResponseCursor":
        """Return a cursor over a copy of the bytes from `start` to the position of this cursor."""
        part = self.data[start : self.position]
        return ResponseCursor(self._api, part, self.version, flexible=self._flexible)

    def fail(self, reason: str) -> NoReturn:
        """Raise `MalformedResponse` with a reason and the current position."""
        raise MalformedResponse(self._api, self.version, self.position, reason)

    def int16(self) -> int:
        """Read two bytes as an integer."""
        (value,) = _INT_16.unpack_from(self.data, self.position)
        self.position += 2
        return int(value)

    def int32(self) -> int:
        """Read four bytes as an integer."""
        (value,) = _INT_32.unpack_from(self.data, self.position)
        self.position += 4
        return int(value)

    def take(self, length: int) -> bytes:
        """Read `length` bytes."""
        taken = self.data[self.position : self.position + length]
        if len(taken) < length:
            self.fail(TRUNCATED)
        self.position += length
        return taken

    def text(self) -> str | None:
        """Read a string. Return None for null."""
        length = self._varint() - 1 if self._flexible else self.int16()
        if length < -1:
            self.fail("a negative length")
        try:
            return None if length < 0 else self.take(length).decode()
        except UnicodeDecodeError:
            self.fail("a string that is not UTF-8")

    def count(self, min_size: int) -> int:
        """Read the length of an array. Raise `MalformedResponse` if that many rows cannot follow.

        A row takes at least `min_size` bytes.
        """
        count = self._varint() - 1 if self._flexible else self.int32()
        if count < 0:
            self.fail("an array that is null")
        if count > (len(self.data) - self.position) // min_size:
            self.fail("a length beyond the end")
        return count

    def numbers_end(self, position: int) -> int:
        """Return the position after the int32 array that begins at `position`.

        This may change the position of the cursor.
        """
        if not self._flexible:
            (count,) = _INT_32.unpack_from(self.data, position)
            if count < -1:
                self.fail("a negative length")
            return position + 4 + 4 * max(int(count), 0)
        if (count := self.data[position]) < 0x80:  # nearly always one byte, which is 0 for null
            return position + 4 * count - 3 if count else position + 1
        self.position = position
        count = self._varint()
        return self.position + 4 * (count - 1)

    def numbers(self, position: int, end: int) -> tuple[int, ...]:
        """Return the int32 array between the positions `position` and `end`."""
        count = (end - position) // 4 - (0 if self._flexible else 1)
        return unpack_from(f">{count}i", self.data, end - 4 * count)

    def tags_end(self, position: int) -> int:
        """Return the position after the tagged fields that begin at `position`.

        This may change the position of the cursor.
        """
        if not self._flexible:
            return position
        if self.data[position] == 0:
            return position + 1
        self.position = position
        for _ in range(self._varint()):
            self._varint()
            self.take(self._varint())
        return self.position

    def skip_tags(self) -> None:
        """Skip the tagged fields of a row."""
        self.position = self.tags_end(self.position)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            self.fail("a varint is longer than its type allows")
        return value
