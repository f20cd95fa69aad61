"""A splitter of a byte stream into frames, which have a length prefix. No I/O."""

import struct
from typing import Final

from asyncconsumer.records.decoding import room_for

_HEAD: Final = struct.Struct(">i")
_MIN_LENGTH: Final = 4  # a response begins with its correlation id of 4 bytes

# Size of the first buffer for the next length and, mostly, all of a small frame: one read instead
# of two. It is small, because its part of a large frame is copied. The rest is received in place.
_HEAD_BUFFER_SIZE: Final = 4096


class BadLength(Exception):
    """An error for a frame whose length prefix is too small or too large."""

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

    def __init__(self, max_length: int) -> None:
        self._max_length = max_length
        self._head_buffer = memoryview(bytearray(_HEAD_BUFFER_SIZE))
        self._waiting = 0  # bytes in `_head_buffer`
        self._frame: memoryview | None = None
        self._filled = 0

    def room(self) -> memoryview:
        """Return the buffer for the next bytes. It is never empty."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._head_buffer[self._waiting :]

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that are complete after `count` bytes were written to `room()`."""
        if self._frame is None:
            self._waiting += count
            return self._split()
        self._filled += count
        if self._filled < len(self._frame):
            return []
        done, self._frame = self._frame, None
        return [done]

    def _split(self) -> list[memoryview]:
        done, position = [], 0
        while self._waiting - position >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._head_buffer, position)
            if not _MIN_LENGTH <= length <= self._max_length:
                raise BadLength(bytes(self._head_buffer[position : position + _HEAD.size]))
            position += _HEAD.size
            frame = memoryview(room_for(length))
            received = min(length, self._waiting - position)
            frame[:received] = self._head_buffer[position : position + received]
            position += received
            if received < length:
                self._frame, self._filled = frame, received
                break
            done.append(frame)
        rest = bytes(self._head_buffer[position : self._waiting])
        self._head_buffer[: len(rest)] = rest
        self._waiting = len(rest)
        return done
