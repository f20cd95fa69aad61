"""Cutting a stream of bytes into frames, without any I/O."""

import struct
from typing import Final

from asyncconsumer.records.decoding import room_for

_HEAD: Final = struct.Struct(">i")
_LEAST: Final = 4  # a response begins with its correlation id

# Room for the next length and, mostly, all of a small frame: one read instead of two. What it
# holds of a large frame is copied, so it is small itself; the rest goes straight into place.
_LOBBY: Final = 4096


class BadLength(Exception):
    """The next four bytes are no length of a frame that we would take."""

    def __init__(self, head: bytes) -> None:
        super().__init__(head)
        self.head = head
        self.length: int = _HEAD.unpack(head)[0]


class Frames:
    """Frames out of bytes: `room()` says where the next ones go, `received()` what they complete.

    Each frame has a buffer of its own, of exactly its size, and nobody writes to it afterwards. No
    memory is taken for a frame before its length has been checked.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lobby = memoryview(bytearray(_LOBBY))
        self._waiting = 0  # bytes in the lobby
        self._frame: memoryview | None = None
        self._filled = 0

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._lobby[self._waiting :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that are complete now that `count` bytes were put where `room()` said."""
        if self._frame is None:
            self._waiting += count
            return self._sort_lobby()
        self._filled += count
        if self._filled < len(self._frame):
            return []
        done, self._frame = self._frame, None
        return [done]

    def _sort_lobby(self) -> list[memoryview]:
        done, at = [], 0
        while self._waiting - at >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._lobby, at)
            if not _LEAST <= length <= self._most:
                raise BadLength(bytes(self._lobby[at : at + _HEAD.size]))
            at += _HEAD.size
            frame = memoryview(room_for(length))
            here = min(length, self._waiting - at)
            frame[:here] = self._lobby[at : at + here]
            at += here
            if here < length:
                self._frame, self._filled = frame, here
                break
            done.append(frame)
        rest = bytes(self._lobby[at : self._waiting])
        self._lobby[: len(rest)] = rest
        self._waiting = len(rest)
        return done
