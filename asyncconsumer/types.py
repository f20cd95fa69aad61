"""The basic value types that all layers use."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple, Self, TypeAlias

_LEGAL_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


def is_legal_topic(name: str) -> bool:
    """Return whether Kafka accepts the topic name. Such a name is also a valid path segment."""
    return _LEGAL_TOPIC.fullmatch(name) is not None


class TopicPartition(NamedTuple):
    """A partition of a topic. It is equal to aiokafka's `TopicPartition`, and has the same hash."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


def partitions_of(topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    """Return the partitions of one topic.

    This is three times as fast as one constructor call for each partition.
    """
    return list(map(_made, zip(repeat(topic), numbers, strict=False)))


_made: Final = partial(tuple.__new__, TopicPartition)  # makes a tuple without a Python frame


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


class OffsetAndTimestamp(NamedTuple):
    """An offset, and the timestamp of its record in ms since 1970.

    The timestamp is -1 if there is no record at the offset, as at the end of the log. The offset is
    -1 if a lookup found none.
    """

    offset: int
    timestamp: int


class Address(NamedTuple):
    """The host and port of a broker."""

    host: str
    port: int

    @property
    def is_possible(self) -> bool:
        """Whether host and port are valid. Brokers may report invalid ones in their metadata."""
        return bool(self.host) and 0 < self.port < 2**16

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Offset(int):
    """An offset to commit: an int with a leader epoch and metadata."""

    leader_epoch: int
    metadata: str

    def __new__(cls, offset: int, *, leader_epoch: int = -1, metadata: str = "") -> Self:
        """Create an offset to commit.

        `leader_epoch` is the epoch of the last record read, or -1 if it is unknown.
        """
        self = super().__new__(cls, offset)
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        return self

    @classmethod
    def of(cls, offset: int) -> "Offset":
        """Return `offset` itself if it is an `Offset`, otherwise an `Offset` of the number."""
        return offset if isinstance(offset, Offset) else Offset(offset)

    def within(self, longest: int) -> "Offset":
        """Return this offset with its metadata cut to at most `longest` characters.

        This class returns itself, because its metadata cannot be cut. Subclasses override the
        method.
        """
        return self


class MemberIdentity(NamedTuple):
    """The identity of a member in requests to its group coordinator."""

    member_id: str
    generation: int  # in KIP-848 groups, the member epoch
    instance_id: str | None = None  # of a static member


FindIdentity: TypeAlias = Callable[[], MemberIdentity | None]
"""A function that returns the identity of this member, or None while it has none."""

NO_MEMBER: Final = MemberIdentity("", -1)
"""The identity for commits without membership. A group with members refuses them."""


class GroupMetadata(NamedTuple):
    """The group and the member for which a transaction commits offsets (KIP-447).

    The group coordinator rejects the offsets of a member whose generation is over. Without a member
    id, it accepts offsets from any producer.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @classmethod
    def of(cls, group_id: str, member: MemberIdentity) -> Self:
        """Return the metadata of a member of the group."""
        return cls(group_id, member.generation, member.member_id, member.instance_id)
