"""Where one partition is read, as far as it was fetched."""

import enum
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import ConsumerError
from asyncconsumer.fetch.fetch_request import PartitionFetch
from asyncconsumer.types import Address, TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.fetch.fetcher import Fetcher


class FetchTarget(NamedTuple):
    """That a partition is to be read, from where, and into which channel.

    Who wants it from another place, or anew, tells another `epoch`: as long as channel and epoch
    stay the same, the partition is read on undisturbed, whatever else is said here.
    """

    channel: Channel
    offset: int  # or EARLIEST, or LATEST
    epoch: int = 0
    end: int | None = None  # stop before it
    paused: bool = False  # keep what was fetched and not yet begun with; fetch nothing
    leader_epoch: int = -1  # of the record before `offset`, if known: tells of a truncation


class ReplicaPlacement(NamedTuple):
    """A broker to read a partition from."""

    node_id: int
    address: Address
    leader_epoch: int


class OffsetState(enum.Enum):
    """How much is known of the offset of a cursor."""

    SYMBOLIC = "it is EARLIEST or LATEST, and must be looked up"
    REFUSED = "the broker says that the log does not have it: to be looked into"
    SURE = "it can be fetched"


@dataclass(slots=True, eq=False)
class Cursor:
    """One partition that is wanted. The manager owns it; a fetcher that has it moves it on.

    `version` changes whenever the cursor is taken from where it is, so whoever asked a broker on
    its behalf can tell whether the answer still matters.
    """

    partition: TopicPartition
    channel: Channel
    epoch: int
    offset: int
    end: int | None
    read_epoch: int  # leader epoch of the last record fetched, or -1
    offset_state: OffsetState
    paused: bool = False
    version: int = 0
    place: ReplicaPlacement | None = None  # where it is, or was last
    refused_at: ReplicaPlacement | None = None  # by a broker which we then do not ask again at once
    trouble: ConsumerError | None = None  # the last one, until a broker answers well
    troubled_since: float | None = None
    strikes: int = 0  # damage found by the broker itself
    topic_id: UUID | None = None
    former_ids: frozenset[UUID] = frozenset()
    replica: tuple[int, float] | None = None  # node to read from in place of the leader, till when
    shuns_replicas_until: float = -inf
    ends: tuple[int, int] = (-1, -1)  # high watermark, last stable offset; as they were last told
    begun: int | None = None  # where reading began, or went on after a jump; once that is known
    fetcher: "Fetcher | None" = None  # that has it now

    @classmethod
    def of(cls, partition: TopicPartition, wanted: FetchTarget) -> "Cursor":
        """A cursor for what is wanted, not paused yet."""
        return cls(
            partition,
            wanted.channel,
            wanted.epoch,
            wanted.offset,
            wanted.end,
            wanted.leader_epoch,
            OffsetState.SURE if wanted.offset >= 0 else OffsetState.SYMBOLIC,
            begun=wanted.offset if wanted.offset >= 0 else None,
        )

    @property
    def finished(self) -> bool:
        """Whether everything up to its end was fetched."""
        return self.end is not None and 0 <= self.end <= self.offset

    def ask(self, max_bytes: int) -> PartitionFetch:
        """What to ask its broker for."""
        epoch = self.place.leader_epoch if self.place is not None else -1
        return PartitionFetch(self.offset, max_bytes, epoch, self.topic_id, self.read_epoch)

    def leader_is_due(self, now: float) -> bool:
        """Whether to ask the leader again which replica is near."""
        return self.replica is not None and now >= self.replica[1]

    def take_away(self) -> None:
        """From where it is: answers that are on their way do not matter any more."""
        self.version += 1

    def set_log_end(self, high_watermark: int, last_stable_offset: int = -1) -> None:
        """Its broker told where the log ends, and where the first open transaction begins."""
        self.ends = high_watermark, last_stable_offset

    @property
    def high_watermark(self) -> int:
        """The end of the log, or -1."""
        return self.ends[0]

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the end of the log; or -1."""
        return self.ends[1]

    def advance(self, offset: int, read_epoch: int) -> None:
        """Records up to there, of that leader epoch, were fetched."""
        self.offset, self.read_epoch, self.strikes = offset, read_epoch, 0

    def jump(self, offset: int, read_epoch: int = -1) -> None:
        """Go on somewhere else; EARLIEST and LATEST must be looked up before."""
        self.offset, self.read_epoch = offset, read_epoch
        self.begun = offset if offset >= 0 else None
        self.offset_state = OffsetState.SURE if offset >= 0 else OffsetState.SYMBOLIC

    def doubt(self) -> None:
        """The broker says that its log does not have the offset."""
        self.offset_state = OffsetState.REFUSED

    def become(self, topic_id: UUID | None) -> None:
        """Belong to the new topic of the same name."""
        if self.topic_id is not None:
            self.former_ids |= {self.topic_id}
        self.topic_id, self.refused_at, self.replica = topic_id, None, None

    def note_error(self, error: ConsumerError, now: float) -> float:
        """Keep the trouble in mind; for how many seconds there has been some."""
        self.trouble = error
        if self.troubled_since is None:
            self.troubled_since = now
        return now - self.troubled_since

    def clear_error(self) -> None:
        """Its broker answers: whatever was wrong is over."""
        self.trouble = self.troubled_since = self.refused_at = None
