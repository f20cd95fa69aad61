"""Rules for errors of fetches, and for preferred replicas. This module performs no I/O."""

from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from asyncconsumer.errors import (
    ConsumerError,
    CorruptMessage,
    CorruptRecords,
    LeaderNotAvailable,
    OffsetUnavailable,
)
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import TopicPartition

_REPLICA_SECONDS: Final = 300.0  # after this time the leader must name a preferred replica again
_LEADER_SECONDS: Final = 30.0  # reading from the leader after a replica failed
_MAX_CORRUPT_RESPONSES: Final = 3


class LogEnds(NamedTuple):
    """The first offset of a log, and the offset after its last record.

    A value of -1 means that the offset was not requested.
    """

    earliest: int
    latest: int


class PreferredReplica(NamedTuple):
    """The replica in the client's rack from which a partition is read (KIP-392).

    The value is immutable, so that thousands of cursors can share `NO_REPLICA`.
    """

    node_id: int | None = None  # the id of the replica, or None to read from the leader
    until: float = -inf  # end of reading from the replica, or of avoiding replicas

    @classmethod
    def redirected(cls, node_id: int, now: float) -> "PreferredReplica":
        """Return the replica that the leader named. It is used for 5 minutes."""
        return cls(node_id, now + _REPLICA_SECONDS)

    def is_expired(self, now: float) -> bool:
        """Return whether the time to use the replica is over, so the leader must name one again."""
        return self.node_id is not None and now >= self.until

    def is_avoided(self, now: float) -> bool:
        """Return whether no replica may be used now, because one has failed."""
        return self.node_id is None and now < self.until

    def failed(self, now: float) -> "PreferredReplica":
        """Return the value to use after a failed fetch.

        If the fetch was from a follower, only the leader is used for 30 s. The leader may not know
        that the follower fails, and would redirect to it again.
        """
        return self if self.node_id is None else PreferredReplica(None, now + _LEADER_SECONDS)


NO_REPLICA: Final = PreferredReplica()
"""Reading from the leader, which may name a replica."""


class OffsetReset(NamedTuple):
    """The option `auto_offset_reset`, applied to a position that is not in the log."""

    policy: str  # "earliest", "latest" or "none"

    @property
    def start(self) -> int:
        """The start for a re-created topic, which is EARLIEST or LATEST."""
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


class FetchErrors(NamedTuple):
    """The errors of a partition since its last successful fetch.

    The value is immutable, so that thousands of cursors can share `NO_ERRORS`.
    """

    last: ConsumerError | None = None
    since: float | None = None  # the time of the first of these errors
    corrupt_responses: int = 0

    def add(self, error: ConsumerError, now: float) -> "FetchErrors":
        """Return these errors with another one, which occurred at the time `now`."""
        corrupt = isinstance(error, CorruptMessage | CorruptRecords)
        since = now if self.since is None else self.since
        return FetchErrors(error, since, self.corrupt_responses + corrupt)

    def final_corruption(
        self, tp: TopicPartition, offset: int, error: ConsumerError
    ) -> CorruptRecords | None:
        """Return the error to raise if `error` is the third corrupt response, otherwise None.

        If the result is None, the caller fetches again, because another replica may become the
        leader.
        """
        if self.corrupt_responses + 1 < _MAX_CORRUPT_RESPONSES:
            return None
        if isinstance(error, CorruptRecords):
            return error
        return CorruptRecords(*tp, offset, "the broker reports corrupt records at this offset")


NO_ERRORS: Final = FetchErrors()


class TopicIds(NamedTuple):
    """The id of the topic that is read, and the ids of deleted topics with the same name.

    The value is immutable, so that thousands of cursors can share `NO_TOPIC_IDS`.
    """

    current: UUID | None = None  # None until metadata has an id
    former: frozenset[UUID] = frozenset()

    def is_recreated(self, tp: TopicPartition, reported: UUID | None) -> bool:
        """Return whether `reported`, the topic id in a response, belongs to a re-created topic.

        Raise `LeaderNotAvailable` if the id is missing or belongs to a deleted topic. The broker
        that sent it has old metadata.
        """
        if self.current is None or reported == self.current:
            return False
        if reported is None or reported in self.former:
            raise LeaderNotAvailable(f"{tp}, because a broker sent metadata of a deleted topic")
        return True

    def switch(self, topic_id: UUID | None) -> "TopicIds":
        """Return the ids after the topic was re-created. `topic_id` is None if it is unknown."""
        deleted = () if self.current is None else (self.current,)
        return TopicIds(topic_id, self.former.union(deleted))


NO_TOPIC_IDS: Final = TopicIds()
