"""The handling of fetch errors that the managed and the direct engine share. No I/O."""

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
    """The first offset of a log, and the offset after its last record. -1 means not requested."""

    earliest: int
    latest: int


class PreferredReplica(NamedTuple):
    """The replica in the client's rack from which a partition is read (KIP-392).

    The value is immutable, so that thousands of cursors can share `NO_REPLICA`.
    """

    node_id: int | None = None  # None for the leader
    until: float = -inf  # end of reading from the replica, or of avoiding replicas

    @classmethod
    def redirected(cls, node_id: int, now: float) -> "PreferredReplica":
        """Return the replica that the leader named. It is used for 5 minutes."""
        return cls(node_id, now + _REPLICA_SECONDS)

    def is_expired(self, now: float) -> bool:
        """Return whether the leader has to be asked again for a preferred replica."""
        return self.node_id is not None and now >= self.until

    def is_avoided(self, now: float) -> bool:
        """Return whether no replica may be used now, because one has failed."""
        return self.node_id is None and now < self.until

    def failed(self, now: float) -> "PreferredReplica":
        """Return the value to use after a failed fetch.

        If the fetch was from another replica than the leader, only the leader is used for 30 s. The
        leader does not notice that the replica fails, and would redirect to it again.
        """
        return self if self.node_id is None else PreferredReplica(None, now + _LEADER_SECONDS)


NO_REPLICA: Final = PreferredReplica()
"""Reading from the leader, which may name a replica."""


class OffsetReset(NamedTuple):
    """The option `auto_offset_reset`, applied to a position that is not in the log."""

    policy: str  # "earliest", "latest" or "none"

    @property
    def start(self) -> int:
        """Return EARLIEST or LATEST, at which a re-created topic is read."""
        return EARLIEST if self.policy == "earliest" else LATEST

    def choose(self, ends: LogEnds) -> int:
        """Return the earliest or the latest offset, whichever `auto_offset_reset` names."""
        return ends.earliest if self.policy == "earliest" else ends.latest

    def relocate(self, tp: TopicPartition, offset: int, ends: LogEnds) -> int | None:
        """Return the offset at which to continue after the error `OffsetOutOfRange`.

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
    """Return the error to raise after several corrupt responses at one offset, or None to retry.

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
    """Return whether `reported`, the topic id in a response, belongs to a re-created topic.

    `current` is the known id, and `former` are earlier ones. Raise `LeaderNotAvailable` if the id
    is missing or belongs to a deleted topic. The broker that sent it has old metadata.
    """
    if current is None or reported == current:
        return False
    if reported is None or reported in former:
        raise LeaderNotAvailable(f"{tp}, because a broker sent metadata of a deleted topic")
    return True
