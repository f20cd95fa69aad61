"""The policies for fetch errors that the managed and the direct engine share. No I/O."""

from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from asyncconsumer.errors import (
    CorruptMessage,
    CorruptRecords,
    LeaderNotAvailable,
    OffsetUnavailable,
)
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import TopicPartition

_REPLICA_SECONDS: Final = 300.0  # then the leader is asked again for a preferred replica
_LEADER_SECONDS: Final = 30.0  # reading from the leader after a replica failed
_MAX_CORRUPT_RESPONSES: Final = 3


class LogEnds(NamedTuple):
    """The first offset of a log and the offset after the last one; -1 if not requested."""

    earliest: int
    latest: int


class PreferredReplica(NamedTuple):
    """The replica in the client's rack that a partition is read from (KIP-392).

    The value is immutable, so that thousands of cursors can share `NO_REPLICA`.
    """

    node_id: int | None = None  # None for the leader
    until: float = -inf  # end of reading from the replica, or of avoiding replicas

    @classmethod
    def redirected(cls, node_id: int, now: float) -> "PreferredReplica":
        """Return the replica that the leader named, which is read from for 5 minutes."""
        return cls(node_id, now + _REPLICA_SECONDS)

    def is_expired(self, now: float) -> bool:
        """Return whether to ask the leader again for a preferred replica."""
        return self.node_id is not None and now >= self.until

    def is_avoided(self, now: float) -> bool:
        """Return whether the leader must not redirect to a replica, because one failed."""
        return self.node_id is None and now < self.until

    def failed(self, now: float) -> "PreferredReplica":
        """Return the value after a failure: the leader for 30 s if a replica was in use.

        The leader does not notice that the replica fails, and would redirect to it again.
        """
        return self if self.node_id is None else PreferredReplica(None, now + _LEADER_SECONDS)


NO_REPLICA: Final = PreferredReplica()
"""Reading from the leader, which may name a replica."""


class OffsetReset(NamedTuple):
    """The effect of `auto_offset_reset` on a position that the log does not have."""

    policy: str  # "earliest", "latest" or "none"

    @property
    def start(self) -> int:
        """Return EARLIEST or LATEST, where a re-created topic is read from."""
        return EARLIEST if self.policy == "earliest" else LATEST

    def choose(self, ends: LogEnds) -> int:
        """Return the end of the log that reading continues at."""
        return ends.earliest if self.policy == "earliest" else ends.latest

    def relocate(self, tp: TopicPartition, offset: int, ends: LogEnds) -> int | None:
        """Return the offset to continue at after `OffsetOutOfRange`.

        Return None if the log has `offset`, because then brokers disagree about the log end. Raise
        `OffsetUnavailable` if the policy is "none".
        """
        if ends.earliest <= offset <= ends.latest:
            return None
        if self.policy == "none":
            raise OffsetUnavailable(*tp, offset, *ends)
        return self.choose(ends)


NO_RESET: Final = OffsetReset("none")


def corruption_error(
    tp: TopicPartition, offset: int, error: CorruptMessage | CorruptRecords, responses: int
) -> CorruptRecords | None:
    """Return the final error after a number of corrupt responses at one offset; None to retry.

    A retry may succeed, because another replica may become the leader.
    """
    if responses < _MAX_CORRUPT_RESPONSES:
        return None
    if isinstance(error, CorruptRecords):
        return error
    return CorruptRecords(*tp, offset, "the broker reports corrupt records at this offset")


def is_recreated(
    tp: TopicPartition, reported: UUID | None, current: UUID | None, former: frozenset[UUID]
) -> bool:
    """Return whether the reported topic id is that of a re-created topic.

    Raise `LeaderNotAvailable` if the id is missing or belongs to a deleted topic. The broker that
    sent it has old metadata.
    """
    if current is None or reported == current:
        return False
    if reported is None or reported in former:
        raise LeaderNotAvailable(f"{tp}, because a broker sent metadata of a deleted topic")
    return True
