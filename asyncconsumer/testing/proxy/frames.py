"""A frame parser for a stream of bytes, without I/O.

Kafka and ZooKeeper both put a big-endian length of four bytes before each request and response.
"""

import struct
from dataclasses import dataclass

from asyncconsumer.testing.proxy.faults import Frame

HEAD = 2**20
"""The maximum number of bytes of a frame that a hook sees. They are kept in memory."""

_UNSIGNED = struct.Struct(">I")
_PREFIX = _UNSIGNED.size
_LONGEST = 2**28
"""A larger number is no frame length. It is TLS, text or a ZooKeeper command ("srvr")."""

_ENDLESS = 2**62

ZOOKEEPER_CONNECT = -10
"""The result of ``zookeeper_opcode`` for a ConnectRequest, which has no opcode.

ZooKeeper servers use the same number for it (createSession).
"""


def zookeeper_opcode(frame: Frame) -> int | None:
    """Return the opcode of a ZooKeeper request, or None if the frame is too short."""
    body = frame.body
    if _is_zookeeper_connect(body):
        return ZOOKEEPER_CONNECT
    return _int32(body, 4) if len(body) >= 8 else None  # xid, opcode


def kafka_api_key(frame: Frame) -> int | None:
    """Return the API key of a Kafka request, or None if the frame is too short."""
    if len(frame.body) < 8:  # api key, api version, correlation id
        return None
    return int.from_bytes(frame.body[:2], "big", signed=True)


def _is_zookeeper_connect(body: bytes) -> bool:
    """Return whether the bytes of a frame are a ConnectRequest of ZooKeeper.

    Its fields are protocol version 0, zxid, timeout, session id, password, and an optional
    read-only flag.
    """
    if len(body) < 28 or _int32(body, 0) != 0:
        return False
    return len(body) - (28 + _int32(body, 24)) in (0, 1)


def _int32(body: bytes, position: int) -> int:
    return int(struct.unpack_from(">i", body, position)[0])


@dataclass(frozen=True, slots=True)
class Piece:
    """The next bytes of a stream to deliver.

    If they are a frame for the frame callback, ``body`` is the frame without its length.
    """

    data: bytes
    body: bytes | None = None
    index: int = 0
    dropped: bool = False  # the rest of a dropped frame


class FrameFinder:
    """A parser that splits a stream of bytes into pieces and knows where frames begin.

    The parser reads the frame lengths even without a frame callback. A callback that is set in the
    middle of a long frame therefore starts with the next frame.
    """

    def __init__(self) -> None:
        self._data = b""
        self._index = 0  # the index of the first byte in _data that was not taken
        self._prefix = b""  # the taken bytes of an incomplete length
        self._rest = 0  # the remaining bytes of the current frame
        self._dropping = False  # whether the current frame is dropped
        self._count = 0  # the number of frames so far

    def feed(self, data: bytes) -> None:
        """Append received bytes to the stream."""
        self._data = self._data[self._index :] + data if self._index < len(self._data) else data
        self._index = 0

    def take(self, *, whole: bool) -> Piece | None:
        """Return the next bytes to deliver, or None if more bytes must arrive before.

        With ``whole`` the result is one frame (or its first MiB).
        """
        available = len(self._data) - self._index
        if not available:
            return None
        if self._dropping and self._rest:
            return Piece(self._pop(min(self._rest, available)), dropped=True)
        if not whole:
            return Piece(self._pop(available))
        if self._prefix or self._rest:  # the callback was set in the middle of this frame
            return Piece(self._pop(min(self._rest or _PREFIX - len(self._prefix), available)))
        return self._take_frame(available)

    def drop_rest(self) -> None:
        """Mark the rest of the frame that ``take`` returned last as dropped."""
        self._dropping = True

    def leftover(self) -> bytes:
        """Return the incomplete frame at the end of the stream."""
        return self._pop(len(self._data) - self._index)

    def _take_frame(self, available: int) -> Piece | None:
        if available < _PREFIX:
            return None
        length = _length(self._data, self._index)
        if length == _ENDLESS:
            return Piece(self._pop(available))
        size = _PREFIX + min(length, HEAD)
        if available < size:
            return None
        index, data = self._count, self._pop(size)
        return Piece(data, body=data[_PREFIX:], index=index)

    def _pop(self, size: int) -> bytes:
        start, self._index = self._index, self._index + size
        # the common case takes all bytes without a copy
        data = self._data if size == len(self._data) else self._data[start : self._index]
        self._follow(data)
        return data

    def _follow(self, data: bytes) -> None:
        data = self._prefix + data
        position, size = self._rest, len(data)
        while position + _PREFIX <= size:
            position += _PREFIX + _length(data, position)
            self._count += 1
            self._dropping = False
        self._prefix = data[position:]
        self._rest = max(0, position - size)


def _length(data: bytes, position: int) -> int:
    length: int = _UNSIGNED.unpack_from(data, position)[0]
    return length if length <= _LONGEST else _ENDLESS
