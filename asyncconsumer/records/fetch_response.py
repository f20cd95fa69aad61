"""The parser of fetch responses in pure Python. It does not decode the records."""

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeVar

from asyncconsumer.errors import MalformedResponse
from asyncconsumer.records.byte_reader import CUT, INT_16, INT_32, INT_64, DecodeError, varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

T = TypeVar("T")

_FIRST_VERSION, _LAST_VERSION = 4, 17
_WITH_LOG_START, _WITH_SESSION, _WITH_PREFERRED_REPLICA = 5, 7, 11
_FLEXIBLE, _WITH_TOPIC_ID = 12, 13
# The smallest sizes of array elements in bytes. A wrong count must not cause an allocation.
_LEAST_TOPIC, _LEAST_PARTITION, _LEAST_ABORTED, _LEAST_ENDPOINT, _LEAST_TAG = 3, 22, 16, 11, 2
_BEYOND: Final = "a length that goes beyond the end"
# The maximum of bytes outside of record sets, besides a fraction of the frame size. Every few bytes
# of these become an object. The list of aborted transactions is a fraction of the records' size.
_MOST_BESIDES: Final = 4 << 20
_BESIDES_PART: Final = 16


class PartitionAnswer(NamedTuple):
    """The part of a fetch response for one partition."""

    topic: str | bytes
    """Topic name; from version 13 on the 16 bytes of the topic id."""
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    """Pairs of producer id and first offset, or None."""
    preferred_read_replica: int
    current_leader: tuple[int, int] | None
    """Node id and epoch of the leader."""
    diverging_epoch: tuple[int, int] | None
    """Leader epoch and its end offset."""
    start: int
    """Start of the record set in the frame."""
    end: int
    """End of the record set in the frame."""


class FetchAnswer(NamedTuple):
    """A parsed fetch response without the records, which stay in the frame."""

    throttle_ms: int
    error_code: int
    session_id: int
    partitions: list[PartitionAnswer]
    node_endpoints: list[tuple[int, str | None, int, str | None]]
    """Node id, host, port and rack of the current leaders in this response."""


def fetch_answer(frame: "Buffer", version: int) -> FetchAnswer:
    """Parse the body of a fetch response of versions 4 to 17, after the response header.

    The records are not copied: `start` and `end` of each partition are positions in the frame.
    Raise `MalformedResponse`, with the position, for bytes that do not follow the protocol.
    """
    if not _FIRST_VERSION <= version <= _LAST_VERSION:
        raise ValueError(
            f"fetch version {version} is not one of {_FIRST_VERSION} to {_LAST_VERSION}"
        )
    data = bytes(frame)
    walk = _Walk(data, 0, len(data), version)
    try:
        return _answer(walk)
    except DecodeError as damage:
        raise MalformedResponse("Fetch", version, walk.failed_at, damage.reason) from None


class _Walk:
    """A reader of a fetch response, or of one tagged field in it."""

    def __init__(self, data: bytes, position: int, end: int, version: int) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.version = version
        self.records = 0  # bytes of the record sets passed so far
        self.failed_at = 0

    def check_besides(self, more: int = 0) -> None:
        """Raise DecodeError if too many bytes of a response are outside of its record sets.

        The bytes that were read so far count, and `more` bytes that follow.
        """
        limit = _MOST_BESIDES + len(self.data) // _BESIDES_PART
        if self.position - self.records + more > limit:
            self.fail("too many bytes outside of its record sets", self.position)

    def fail(self, reason: str, position: int) -> NoReturn:
        self.failed_at = position
        raise DecodeError(reason)

    def take(self, length: int) -> bytes:
        if self.end - self.position < length:
            self.fail(CUT, self.position)
        self.position += length
        return self.data[self.position - length : self.position]

    def number(self, kind: Struct) -> int:
        value: int = kind.unpack(self.take(kind.size))[0]
        return value

    def varint(self) -> int:
        self.failed_at = self.position
        value, self.position = varint(self.data, self.position, self.end, 32)
        return value

    def length(self, least: int, kind: Struct = INT_32) -> int:
        """Read the length of an array whose elements take `least` bytes or more.

        Return -1 for a null array.
        """
        start = self.position
        length = self.varint() - 1 if self.version >= _FLEXIBLE else self.number(kind)
        if length < -1:
            self.fail("a negative length", start)
        if length > (self.end - self.position) // least:
            self.fail(_BEYOND, start)
        return length

    def count(self, least: int) -> int:
        start = self.position
        count = self.length(least)
        if count < 0:
            self.fail("an array that is null", start)
        return count

    def text(self) -> str | None:
        start = self.position
        length = self.length(1, INT_16)
        if length < 0:
            return None
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            self.fail("a string that is not UTF-8", start)

    def tags(self) -> dict[int, tuple[int, int]]:
        """Read the tagged fields. Return the start and end of each field by its tag."""
        tags: dict[int, tuple[int, int]] = {}
        if self.version < _FLEXIBLE:
            return tags
        start = self.position
        count = self.varint()
        if count > (self.end - self.position) // _LEAST_TAG:
            self.fail(_BEYOND, start)
        for _ in range(count):
            tag = self.varint()
            start = self.position
            size = self.varint()
            if size > self.end - self.position:
                self.fail(_BEYOND, start)
            tags[tag] = self.position, self.position + size
            self.position += size
        return tags

    def inside(self, tag: tuple[int, int], read: "Callable[[_Walk], T]") -> T:
        """Call `read` to read the content of a tagged field. Return its result.

        `tag` is the start and the end of the content in the response. If `read` does not read it to
        its end, raise DecodeError.
        """
        inner = _Walk(self.data, *tag, self.version)
        try:
            value = read(inner)
            if inner.position != inner.end:
                inner.fail("a tagged field that is longer than its content", inner.position)
        except DecodeError:
            self.failed_at = inner.failed_at
            raise
        return value


def _answer(walk: _Walk) -> FetchAnswer:
    throttle = walk.number(INT_32)
    error = walk.number(INT_16) if walk.version >= _WITH_SESSION else 0
    session = walk.number(INT_32) if walk.version >= _WITH_SESSION else 0
    partitions: list[PartitionAnswer] = []
    for _ in range(walk.count(_LEAST_TOPIC)):
        start = walk.position
        topic = walk.text() if walk.version < _WITH_TOPIC_ID else walk.take(16)
        if topic is None:
            walk.fail("a topic without a name", start)
        count = walk.count(_LEAST_PARTITION)
        for _ in range(count):
            partitions.append(_partition(walk, topic))
            walk.check_besides()
        walk.tags()
    tags = walk.tags()
    if walk.position != walk.end:
        walk.fail("bytes after its end", walk.position)
    walk.check_besides()
    endpoints = walk.inside(tags[0], _endpoints) if 0 in tags else []
    return FetchAnswer(throttle, error, session, partitions, endpoints)


def _partition(walk: _Walk, topic: str | bytes) -> PartitionAnswer:
    partition, error = walk.number(INT_32), walk.number(INT_16)
    high, stable = walk.number(INT_64), walk.number(INT_64)
    first = walk.number(INT_64) if walk.version >= _WITH_LOG_START else -1
    aborted = _aborted(walk)
    replica = walk.number(INT_32) if walk.version >= _WITH_PREFERRED_REPLICA else -1
    length = walk.length(1)
    start = walk.position
    walk.position += max(length, 0)
    end = walk.position
    walk.records += end - start
    tags = walk.tags()
    leader = walk.inside(tags[1], lambda inner: _pair(inner, INT_32)) if 1 in tags else None
    epoch = walk.inside(tags[0], lambda inner: _pair(inner, INT_64)) if 0 in tags else None
    return PartitionAnswer(
        topic, partition, error, high, stable, first, aborted, replica, leader, epoch, start, end
    )


def _aborted(walk: _Walk) -> list[tuple[int, int]] | None:
    count = walk.length(_LEAST_ABORTED)
    if count < 0:
        return None
    walk.check_besides(count * _LEAST_ABORTED)
    listed = []
    for _ in range(count):
        listed.append((walk.number(INT_64), walk.number(INT_64)))
        walk.tags()
    return listed


def _pair(walk: _Walk, second: Struct) -> tuple[int, int]:
    pair = walk.number(INT_32), walk.number(second)
    walk.tags()
    return pair


def _endpoints(walk: _Walk) -> list[tuple[int, str | None, int, str | None]]:
    endpoints = []
    for _ in range(walk.count(_LEAST_ENDPOINT)):
        node, host, port = walk.number(INT_32), walk.text(), walk.number(INT_32)
        endpoints.append((node, host, port, walk.text()))
        walk.tags()
    return endpoints
