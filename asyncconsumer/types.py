"""The small values that every layer speaks of."""

import re
from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple, Self

_LEGAL_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


def is_legal_topic(name: str) -> bool:
    """Whether Kafka accepts it as the name of a topic. Such a name is one step of a path."""
    return _LEGAL_TOPIC.fullmatch(name) is not None


class TopicPartition(NamedTuple):
    """One partition of one topic. Equal to, and hashed like, aiokafka's own."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


def partitions_of(topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    """Several partitions of one topic, in a third of the time that one call for each takes."""
    return list(map(_made, zip(repeat(topic), numbers, strict=False)))


_made: Final = partial(tuple.__new__, TopicPartition)  # without a frame of Python for each


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


class OffsetAndTimestamp(NamedTuple):
    """The offset of a record, and its timestamp in ms since 1970; -1 where there is no record."""

    offset: int
    timestamp: int


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    @property
    def is_possible(self) -> bool:
        """Whether anybody can listen there: what others tell need not be true."""
        return bool(self.host) and 0 < self.port < 2**16

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Offset(int):
    """An offset as a group keeps it, with what is kept beside it. Otherwise a number like any."""

    leader_epoch: int
    metadata: str

    def __new__(cls, offset: int, *, leader_epoch: int = -1, metadata: str = "") -> Self:
        """`leader_epoch` is that of the last record read, -1 when it is not known."""
        self = super().__new__(cls, offset)
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        return self

    @classmethod
    def of(cls, offset: int) -> "Offset":
        """It as one, whatever it was."""
        return offset if isinstance(offset, Offset) else Offset(offset)

    def within(self, longest: int) -> "Offset":
        """The same with a text of at most so many characters, if that may be cut: this may not."""
        return self


class MemberIdentity(NamedTuple):
    """As whom a member speaks to its group's coordinator."""

    member_id: str
    generation: int  # or, in groups of KIP-848, the member's epoch
    instance_id: str | None = None  # of a static member


OUTSIDER: Final = MemberIdentity("", -1)
"""Who commits without being a member; a group that has members refuses."""
