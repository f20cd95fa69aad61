"""The codec for subscriptions and assignments of classic groups.

Brokers pass these bytes on without reading them. A member sends its subscription when it joins, and
the group leader sends each member its assignment. Both are Kafka's "consumer" protocol, with the
same bytes as the Java client. Newer versions can be read, because they only add fields at the end.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self, TypeVar

from asyncconsumer.errors import ConfigError, MalformedConsumerProtocol
from asyncconsumer.protocol.java_hash import computed_order, utf16
from asyncconsumer.types import TopicPartition, partitions_of

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type in JoinGroup for this protocol."""
NEWEST_VERSION: Final = 3
NO_GENERATION: Final = -1

_MAX_TEXT_BYTES: Final = 2**15 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConsumerProtocolSubscription:
    """The subscription and owned partitions of a member, sent in each JoinGroup.

    Version 1 added the owned partitions, version 2 their generation, version 3 the rack.
    """

    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None

    def encode(self, version: int = NEWEST_VERSION) -> bytes:
        """Return the subscription encoded in `version`, without fields that it lacks."""
        parts = [
            _version(version),
            _array(_text("a topic", topic) for topic in sorted(self.topics, key=utf16)),
            _sized(self.user_data),
        ]
        if version >= 1:
            owned = sorted(self.owned_partitions, key=lambda p: (utf16(p.topic), p.partition))
            parts.append(_topic_partitions(owned))
        if version >= 2:
            parts.append(_INT_32.pack(self.generation_id))
        if version >= 3:
            parts.append(
                _INT_16.pack(-1) if self.rack_id is None else _text("rack_id", self.rack_id)
            )
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the subscription that is encoded in `data`, in any version."""
        reader = _ProtocolReader(data, "subscription")
        version = reader.version()
        return cls(
            topics=reader.many("topics", 2, lambda: reader.text("a topic")),
            user_data=reader.sized("user_data"),
            owned_partitions=reader.topic_partitions("owned_partitions") if version >= 1 else (),
            # any negative number means no generation
            generation_id=max(reader.int32("generation_id"), NO_GENERATION)
            if version >= 2
            else NO_GENERATION,
            rack_id=reader.optional_text("rack_id") or None if version >= 3 else None,
        )


@dataclass(frozen=True, slots=True)
class ConsumerProtocolAssignment:
    """The assignment of a member, sent in SyncGroup. All versions have the same fields."""

    assigned_partitions: Sequence[TopicPartition]
    user_data: bytes | None = None

    def encode(self, version: int = NEWEST_VERSION) -> bytes:
        """Return the assignment encoded in `version`."""
        partitions = _topic_partitions(self.assigned_partitions)
        return _version(version) + partitions + _sized(self.user_data)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the assignment that is encoded in `data`, in any version."""
        reader = _ProtocolReader(data, "assignment")
        reader.version()
        partitions = reader.topic_partitions("assigned_partitions")
        return cls(partitions, reader.sized("user_data"))


class StickyUserData(NamedTuple):
    """The previous assignment of a member, as user data of the "sticky" assignor.

    It is needed because an eager member owns no partitions when it joins. Version 0, without a
    generation, is from Kafka before 2.3.
    """

    partitions: Sequence[TopicPartition]
    generation: int | None

    def encode(self) -> bytes:
        """Return the encoded user data, with topics in the order of Java's HashMap."""
        order = computed_order(partition.topic for partition in self.partitions)
        partitions = _topic_partitions(self.partitions, order)
        return partitions + (b"" if self.generation is None else _INT_32.pack(self.generation))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the user data encoded in `data`. It is of version 0 if it has no generation."""
        reader = _ProtocolReader(data, "user data of the sticky assignor")
        partitions = reader.topic_partitions("previous_assignment")
        return cls(partitions, reader.int32("generation") if reader.remaining >= 4 else None)


class CooperativeStickyUserData(NamedTuple):
    """The user data of the "cooperative-sticky" assignor: one generation.

    The member's owned partitions were assigned in that generation.
    """

    generation: int

    def encode(self) -> bytes:
        """Return the encoded user data."""
        return _INT_32.pack(self.generation)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the user data that is encoded in `data`."""
        reader = _ProtocolReader(data, "user data of the cooperative-sticky assignor")
        return cls(reader.int32("generation"))


_INT_16: Final = struct.Struct(">h")
_INT_32: Final = struct.Struct(">i")


def _version(version: int) -> bytes:
    if not 0 <= version <= NEWEST_VERSION:
        raise ConfigError(f"the consumer protocol has versions 0 to {NEWEST_VERSION}: {version}")
    return _INT_16.pack(version)


def _array(rows: Iterable[bytes]) -> bytes:
    encoded = list(rows)
    return _INT_32.pack(len(encoded)) + b"".join(encoded)


def _text(field: str, text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _MAX_TEXT_BYTES:
        raise ConfigError(
            f"{field} of {len(encoded)} bytes is too long: {text[:40]!r}... (the limit is "
            f"{_MAX_TEXT_BYTES} bytes)"
        )
    return _INT_16.pack(len(encoded)) + encoded


def _sized(data: bytes | None) -> bytes:
    return _INT_32.pack(-1) if data is None else _INT_32.pack(len(data)) + data


def _topic_partitions(
    partitions: Iterable[TopicPartition], order: Iterable[str] | None = None
) -> bytes:
    """Return the encoded partitions, grouped by topic.

    Topics are in the given `order`, or in the order in which they first occur.
    """
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return _array(_text("a topic", topic) + _numbers(numbers[topic]) for topic in order or numbers)


def _numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


class _ProtocolReader:
    """A reader of bytes from another member. If they are malformed, it raises an error.

    The error is `MalformedConsumerProtocol`.
    """

    def __init__(self, data: bytes, message: str) -> None:
        self._data = data
        self._message = message
        self._position = 0

    @property
    def remaining(self) -> int:
        """The number of bytes that have not been read."""
        return len(self._data) - self._position

    def version(self) -> int:
        """Read the version.

        A version above `NEWEST_VERSION` is allowed, because it only adds fields.
        """
        version = self._number("version", _INT_16)
        if version < 0:
            raise self._malformed(f"its version is {version}")
        return version

    def int32(self, field: str) -> int:
        """Read a number of 32 bits. `field` is its name in errors."""
        return self._number(field, _INT_32)

    def many(self, field: str, min_size: int, row: Callable[[], T]) -> tuple[T, ...]:
        """Read an array. `row` reads one of its rows, each of which takes `min_size` bytes or more.

        `field` is its name in errors.
        """
        return tuple(row() for _ in range(self._count(field, min_size)))

    def numbers(self, field: str) -> tuple[int, ...]:
        """Read an array of numbers of 32 bits."""
        count = self._count(field, _INT_32.size)
        return struct.unpack(f">{count}i", self._take(field, count * _INT_32.size))

    def _count(self, field: str, min_size: int) -> int:
        count = self.int32(field)
        if count < 0:
            raise self._malformed(f"{field} has {count} entries")
        if count * min_size > self.remaining:
            raise self._malformed(f"{field} has {count} entries in {self.remaining} bytes")
        return count

    def topic_partitions(self, field: str) -> tuple[TopicPartition, ...]:
        """Read an array of topics with their partitions."""

        def row() -> Collection[TopicPartition]:
            topic = self.text(f"a topic of {field}")
            numbers = self.numbers(f"{field} of {topic!r}")
            return partitions_of(topic, numbers)

        return tuple(partition for rows in self.many(field, 6, row) for partition in rows)

    def sized(self, field: str) -> bytes | None:
        """Read nullable bytes with a length prefix."""
        length = self.int32(field)
        return None if length < 0 else self._take(field, length)

    def optional_text(self, field: str) -> str | None:
        """Read a nullable string."""
        length = self._number(field, _INT_16)
        if length < 0:
            return None
        try:
            return self._take(field, length).decode()
        except UnicodeDecodeError as error:
            raise self._malformed(f"{field} is not UTF-8: {error.reason}") from None

    def text(self, field: str) -> str:
        """Read a string that must not be null."""
        text = self.optional_text(field)
        if text is None:
            raise self._malformed(f"{field} is null")
        return text

    def _number(self, field: str, kind: struct.Struct) -> int:
        (number,) = kind.unpack(self._take(field, kind.size))
        return int(number)

    def _take(self, field: str, length: int) -> bytes:
        if length > self.remaining:
            raise self._malformed(f"{field} needs {length} bytes, {self.remaining} are left")
        self._position += length
        return self._data[self._position - length : self._position]

    def _malformed(self, reason: str) -> MalformedConsumerProtocol:
        return MalformedConsumerProtocol(self._message, self._position, reason)
