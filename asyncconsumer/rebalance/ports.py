"""Who takes part in a rebalance besides the membership: offsets, streams, listeners."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from asyncconsumer.errors import ConsumerError, ListenerFailed
from asyncconsumer.group.membership import Assignment
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition


class OffsetCommits(Protocol):
    """Where a group's offsets are."""

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        """The offset to go on at; None where there is none."""

    async def commit(
        self, offsets: Mapping[TopicPartition, int], *, rewind: bool = False
    ) -> object:
        """Keep them, or raise; with `rewind` also if larger ones were kept before."""

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They are not ours any more: keep nothing for them that is not kept yet."""


Ends = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""Where to stop reading partitions, of those that have an end."""
Listener = Callable[[Collection[TopicPartition]], Awaitable[None]]


async def endless(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    """They are read for ever."""
    return {}


async def _nobody(partitions: Collection[TopicPartition]) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is told what, in the order in which it happens."""

    before_releasing: Listener = _nobody
    """They are no longer read, and committed, and ours until this returns."""
    before_starting: Callable[[Assignment, Collection[TopicPartition]], Awaitable[None]] = field(
        default=lambda assignment, new: _nobody(new)
    )
    """New ones are ours, and are read when this returns, from where `seek` says meanwhile."""
    lost: Listener = _nobody
    """They were taken away: what was not committed will be read again, by another."""


async def call_listener(what: str, listening: Awaitable[None]) -> None:
    """Have a listener told; what it raises is raised where users wait."""
    try:
        await listening
    except ConsumerError:
        raise
    except Exception as error:
        raise ListenerFailed(what, repr(error)) from error


class Streams(Protocol):
    """Who reads what."""

    def of(self, partition: TopicPartition, number: int) -> Stream:
        """The stream of that number that reads a partition."""

    def all(self) -> Collection[Stream]:
        """All there are."""

    def end(self, partition: TopicPartition) -> None:
        """It is not ours any more."""

    def close(self, error: ConsumerError | None = None) -> None:
        """Let readers come to the end of what is there; then end, or raise the error."""


class RebalancePolicy(NamedTuple):
    """What is decided once, for all rebalances."""

    auto_offset_reset: str
    auto_commit: bool
    grace: float  # seconds that users have to finish a record before its partition is given up
    listeners: Listeners
    ends: Ends
    rewind: bool  # more was committed than is finished: it is taken back when something is given up
