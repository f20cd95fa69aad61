"""Finding frames in a stream of bytes; no I/O.

Kafka and ZooKeeper both put a big-endian length of four bytes before each request and response.
"""

import struct
from dataclasses import dataclass

from asyncconsumer.testing.proxy.faults import Frame

HEAD = 2**20
"""A hook sees at most so much of a frame: what it has to see must be kept in memory."""

_UNSIGNED = struct.Struct(">I")
_PREFIX = _UNSIGNED.size
_LONGEST = 2**28
"""What claims to be longer is no frame: TLS, text, a four letter word of ZooKeeper ("srvr")."""

_ENDLESS = 2**62

ZOOKEEPER_CONNECT = -10
"""What ``zookeeper_opcode`` gives for the request that opens a session, which carries no opcode.

It is the server's own number for it (createSession).
"""


def zookeeper_opcode(frame: Frame) -> int | None:
    """The opcode of a ZooKeeper request, or None if the frame is too short to be one."""
    body = frame.body
    if _is_zookeeper_connect(body):
        return ZOOKEEPER_CONNECT
    return _int32(body, 4) if len(body) >= 8 else None  # xid, opcode


def kafka_api_key(frame: Frame) -> int | None:
    """The API key of a Kafka request, or None if the frame is too short to be one."""
    if len(frame.body) < 8:  # api key, api version, correlation id
        return None
    return int.from_bytes(frame.body[:2], "big", signed=True)


def _is_zookeeper_connect(body: bytes) -> bool:
    """Protocol version 0, zxid, timeout, session id, a password that ends it, maybe read-only."""
    if len(body) < 28 or _int32(body, 0) != 0:
        return False
    return len(body) - (28 + _int32(body, 24)) in (0, 1)


def _int32(body: bytes, at: int) -> int:
    return int(struct.unpack_from(">i", body, at)[0])


@dataclass(frozen=True, slots=True)
class Piece:
    """The next bytes of the stream. With a ``body``, they are a frame to be judged."""

    data: bytes
    body: bytes | None = None
    index: int = 0
    dropped: bool = False  # the rest of a frame that was dropped


class FrameFinder:
    """Cuts one stream into pieces, and knows at any time where the next frame begins.

    It follows the lengths even while nobody wants to see frames, so that a hook that is set in
    the middle of a long frame starts with the next one.
    """

    def __init__(self) -> None:
        self._data = b""
        self._at = 0  # what comes before it in _data has been taken
        self._prefix = b""  # what has been taken of a length that is not complete
        self._rest = 0  # bytes still to come of the frame that has begun
        self._dropping = False  # whether that frame is to be dropped
        self._count = 0  # frames that have begun

    def feed(self, data: bytes) -> None:
        """Append what was read."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def take(self, *, whole: bool) -> Piece | None:
        """The next piece, or None until more is fed; ``whole`` to stop at each frame."""
        available = len(self._data) - self._at
        if not available:
            return None
        if self._dropping and self._rest:
            return Piece(self._pop(min(self._rest, available)), dropped=True)
        if not whole:
            return Piece(self._pop(available))
        if self._prefix or self._rest:  # it began unseen
            return Piece(self._pop(min(self._rest or _PREFIX - len(self._prefix), available)))
        return self._take_frame(available)

    def drop_rest(self) -> None:
        """Let the rest of the frame that was taken last be dropped too."""
        self._dropping = True

    def leftover(self) -> bytes:
        """What waits for the rest of its frame, once it is known that no more will come."""
        return self._pop(len(self._data) - self._at)

    def _take_frame(self, available: int) -> Piece | None:
        if available < _PREFIX:
            return None
        length = _length(self._data, self._at)
        if length == _ENDLESS:
            return Piece(self._pop(available))
        size = _PREFIX + min(length, HEAD)
        if available < size:
            return None
        index, data = self._count, self._pop(size)
        return Piece(data, body=data[_PREFIX:], index=index)

    def _pop(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        # the common case is all of it: no copy
        data = self._data if size == len(self._data) else self._data[start : self._at]
        self._follow(data)
        return data

    def _follow(self, data: bytes) -> None:
        data = self._prefix + data
        at, size = self._rest, len(data)
        while at + _PREFIX <= size:
            at += _PREFIX + _length(data, at)
            self._count += 1
            self._dropping = False
        self._prefix = data[at:]
        self._rest = max(0, at - size)


def _length(data: bytes, at: int) -> int:
    length: int = _UNSIGNED.unpack_from(data, at)[0]
    return length if length <= _LONGEST else _ENDLESS
