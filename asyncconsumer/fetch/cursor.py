"""The cursor: the fetch position of one partition."""

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import ConsumerError
from asyncconsumer.fetch.fetch_request import PartitionFetch
from asyncconsumer.fetch.policy import (
    NO_ERRORS,
    NO_REPLICA,
    NO_TOPIC_IDS,
    FetchErrors,
    PreferredReplica,
    TopicIds,
)
from asyncconsumer.types import Address, TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.fetch.fetcher import Fetcher


class FetchTarget(NamedTuple):
    """A partition to fetch, with its channel, start offset and optional end offset.

    If `epoch` or `channel` changes, the fetch manager starts again from `offset`. If both stay the
    same, reading continues at its position, even if `offset` or `end` changes.
    """

    channel: Channel  # the buffer to which the records are added
    offset: int  # an offset, EARLIEST or LATEST
    epoch: int = 0
    end: int | None = None  # the offset after the last record to fetch
    paused: bool = False  # hold buffered chunks and fetch nothing
    leader_epoch: int = -1  # epoch of the record before `offset`, or -1; detects a truncation


class ReplicaPlacement(NamedTuple):
    """The broker from which a partition is read, and the leader epoch of the partition."""

    node_id: int
    address: Address
    leader_epoch: int


class OffsetState(enum.Enum):
    """The state of a cursor's offset. Only a KNOWN offset can be fetched."""

    UNRESOLVED = "it is EARLIEST or LATEST, and must be looked up"
    OUT_OF_RANGE = "the broker reported that the log does not have it"
    KNOWN = "it can be fetched"


@dataclass(slots=True, eq=False)
class Cursor:
    """The fetch position and fetch state of one partition.

    The fetch manager creates and removes cursors. A fetcher, which sends requests to one broker,
    advances its cursors.

    `version` changes whenever the cursor is removed from a fetcher or a lookup. The sender of a
    request compares versions to detect that the response is stale.
    """

    partition: TopicPartition
    target: FetchTarget  # the target when reading began
    offset: int
    read_epoch: int  # leader epoch of the last record fetched, or -1
    offset_state: OffsetState
    paused: bool = False
    version: int = 0
    broker: ReplicaPlacement | None = None  # current or last broker
    # the broker that refused this cursor, which is not retried at once
    refused_by: ReplicaPlacement | None = None
    errors: FetchErrors = NO_ERRORS
    topic_ids: TopicIds = NO_TOPIC_IDS
    replica: PreferredReplica = NO_REPLICA
    log_end: tuple[int, int] = (-1, -1)  # last known high watermark and last stable offset
    start_offset: int | None = None  # first offset read since the start or the last jump, if known
    fetcher: "Fetcher | None" = None  # the current fetcher

    @classmethod
    def of(cls, partition: TopicPartition, target: FetchTarget) -> "Cursor":
        """Return a new cursor for a fetch target. The cursor is not paused."""
        return cls(
            partition,
            target,
            target.offset,
            target.leader_epoch,
            OffsetState.KNOWN if target.offset >= 0 else OffsetState.UNRESOLVED,
            start_offset=target.offset if target.offset >= 0 else None,
        )

    @property
    def finished(self) -> bool:
        """Whether all records before the end offset were fetched. False without an end offset."""
        end = self.target.end
        return end is not None and 0 <= end <= self.offset

    def to_fetch(self, max_bytes: int) -> PartitionFetch:
        """Return the entry of this partition for a Fetch request."""
        epoch = self.broker.leader_epoch if self.broker is not None else -1
        return PartitionFetch(
            self.offset, max_bytes, epoch, self.topic_ids.current, self.read_epoch
        )

    def detach(self) -> None:
        """Change the version, so that responses to requests in flight are ignored."""
        self.version += 1

    def set_log_end(self, high_watermark: int, last_stable_offset: int = -1) -> None:
        """Store the high watermark and the last stable offset of a response."""
        self.log_end = high_watermark, last_stable_offset

    @property
    def high_watermark(self) -> int:
        """The last known high watermark, or -1 if none is known."""
        return self.log_end[0]

    @property
    def last_stable_offset(self) -> int:
        """The last known last stable offset, or -1 if none is known."""
        return self.log_end[1]

    def advance(self, offset: int, read_epoch: int) -> None:
        """Move to `offset`, because all records before it were fetched.

        `read_epoch` is the leader epoch of the last of these records.
        """
        self.offset, self.read_epoch = offset, read_epoch

    def jump(self, offset: int, read_epoch: int = -1) -> None:
        """Continue at another offset. `read_epoch` is the leader epoch of the record before it.

        `offset` may be EARLIEST or LATEST, which must then be looked up before the next fetch.
        """
        self.offset, self.read_epoch = offset, read_epoch
        self.start_offset = offset if offset >= 0 else None
        self.offset_state = OffsetState.KNOWN if offset >= 0 else OffsetState.UNRESOLVED

    def mark_out_of_range(self) -> None:
        """Mark the offset as out of range, because a broker refused to fetch at it."""
        self.offset_state = OffsetState.OUT_OF_RANGE

    def switch_topic(self, topic_id: UUID | None) -> None:
        """Switch to `topic_id`, the id of the re-created topic, or None if it is unknown."""
        self.topic_ids, self.refused_by = self.topic_ids.switch(topic_id), None
        self.replica = NO_REPLICA

    def note_error(self, error: ConsumerError, now: float) -> float:
        """Store an error of this partition, which occurred at the loop time `now`.

        Return the seconds since the first error after the last successful response.
        """
        self.errors = self.errors.add(error, now)
        assert self.errors.since is not None
        return now - self.errors.since

    def clear_errors(self) -> None:
        """Clear the errors after a successful response."""
        self.errors, self.refused_by = NO_ERRORS, None
