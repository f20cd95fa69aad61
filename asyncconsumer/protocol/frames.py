"""The splitter of a byte stream into frames. No I/O."""

import struct
from typing import Final

from asyncconsumer.records.decoding import room_for

_HEAD: Final = struct.Struct(">i")
_LEAST: Final = 4  # a response begins with its correlation id of 4 bytes

# Size of the first buffer for the next length and, mostly, all of a small frame: one read instead
# of two. It is small, because its part of a large frame is copied. The rest is received in place.
_LOBBY: Final = 4096


class BadLength(Exception):
    """A frame length that is too small or too large."""

    def __init__(self, head: bytes) -> None:
        super().__init__(head)
        self.head = head
        self.length: int = _HEAD.unpack(head)[0]


class Frames:
    """A splitter of received bytes into frames.

    `room()` returns the buffer for the next bytes, and `received()` the frames that they complete.
    Each frame has its own buffer of exactly its size, which is not written to afterwards. The
    length of a frame is checked before memory is allocated for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lobby = memoryview(bytearray(_LOBBY))
        self._waiting = 0  # bytes in `_lobby`
        self._frame: memoryview | None = None
        self._filled = 0

    def room(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._lobby[self._waiting :]

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that are complete after `count` bytes were written to `room()`."""
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
