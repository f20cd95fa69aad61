"""The interfaces that a rebalancer uses besides the membership: offsets, streams and listeners."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from asyncconsumer.errors import ConsumerError, ListenerFailed
from asyncconsumer.group.membership import Assignment
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition


class OffsetCommits(Protocol):
    """The interface with which a rebalancer loads and commits the offsets of a group."""

    async def load(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None where none is committed."""

    async def commit(
        self, offsets: Mapping[TopicPartition, int], *, rewind: bool = False
    ) -> object:
        """Commit `offsets`. Raise an error if that fails.

        With `rewind`, an offset may be smaller than the committed one.
        """

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Do not commit the requested offsets of these partitions that are not committed yet."""


Ends = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""Returns the end offsets of those partitions that have one."""
ListenerFunction = Callable[[Collection[TopicPartition]], Awaitable[None]]


async def endless(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return an empty mapping, because no partition has an end offset."""
    return {}


async def _no_listener(partitions: Collection[TopicPartition]) -> None:
    """Do nothing. This is the default of each listener function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The callbacks of a rebalance, in the order of their calls."""

    before_releasing: ListenerFunction = _no_listener
    """Called for stopped and committed partitions. They are released when it returns."""
    before_starting: Callable[[Assignment, Collection[TopicPartition]], Awaitable[None]] = field(
        default=lambda assignment, new: _no_listener(new)
    )
    """Called for new partitions, and may `seek`. The partitions are fetched when it returns."""
    lost: ListenerFunction = _no_listener
    """Called for partitions that were lost. Other members read their uncommitted records again."""


async def call_listener(method: str, listening: Awaitable[None]) -> None:
    """Await `listening`, the call of a rebalance listener.

    If it raises an exception that is not a `ConsumerError`, raise ListenerFailed, which names the
    listener's method `method`.
    """
    try:
        await listening
    except ConsumerError:
        raise
    except Exception as error:
        raise ListenerFailed(method, repr(error)) from error


class Streams(Protocol):
    """The streams of a consumer, by partition."""

    def of(self, partition: TopicPartition, number: int) -> Stream:
        """Return the stream that reads the partition.

        `number` comes from the assignment. It is the index among the streams of the topic.
        """

    def all(self) -> Collection[Stream]:
        """Return all streams."""

    def end(self, partition: TopicPartition) -> None:
        """Remove a partition that is not assigned any more. A stream without partitions may end."""

    def close(self, error: ConsumerError | None = None) -> None:
        """Close all streams. Each delivers its buffered records, then ends or raises `error`."""


class RebalancePolicy(NamedTuple):
    """The settings of a rebalancer that stay the same for all rebalances."""

    auto_offset_reset: str
    auto_commit: bool
    grace: float  # seconds to wait for records in flight before a partition is revoked
    listeners: Listeners
    ends: Ends
    rewind: bool  # the commit at a revocation may go back (at-most-once commits run ahead)
