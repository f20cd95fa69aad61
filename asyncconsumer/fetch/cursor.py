"""Where one partition is read, as far as it was fetched."""

import enum
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from asyncconsumer.chunks.channel import Channel
from asyncconsumer.errors import ConsumerError
from asyncconsumer.fetch.ask import Ask
from asyncconsumer.model import Address, TopicPartition


class Wanted(NamedTuple):
    """That a partition is to be read, from where, and into which channel.

    Who wants it from another place, or anew, tells another `epoch`: as long as channel and epoch
    stay the same, the partition is read on undisturbed, whatever else is said here.
    """

    channel: Channel
    offset: int  # or EARLIEST, or LATEST
    epoch: int = 0
    end: int | None = None  # stop before it
    paused: bool = False  # keep what was fetched, hand out and fetch nothing
    leader_epoch: int = -1  # of the record before `offset`, if known: tells of a truncation


class Place(NamedTuple):
    """A broker to read a partition from."""

    node_id: int
    address: Address
    leader_epoch: int


class Standing(enum.Enum):
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
    paused: bool
    read_epoch: int  # leader epoch of the last record fetched, or -1
    standing: Standing
    version: int = 0
    place: Place | None = None  # where it is, or was last
    refused_at: Place | None = None  # by a broker which we then do not ask again at once
    trouble: ConsumerError | None = None  # the last one, until a broker answers well
    troubled_since: float | None = None
    strikes: int = 0  # damage found by the broker itself
    topic_id: UUID | None = None
    former_ids: set[UUID] = field(default_factory=set)
    replica: tuple[int, float] | None = None  # node to read from in place of the leader, till when
    high_watermark: int = -1

    @classmethod
    def of(cls, partition: TopicPartition, wanted: Wanted) -> "Cursor":
        """A cursor for what is wanted."""
        return cls(
            partition,
            wanted.channel,
            wanted.epoch,
            wanted.offset,
            wanted.end,
            wanted.paused,
            wanted.leader_epoch,
            Standing.SURE if wanted.offset >= 0 else Standing.SYMBOLIC,
        )

    @property
    def finished(self) -> bool:
        """Whether everything up to its end was fetched."""
        return self.end is not None and 0 <= self.end <= self.offset

    def ask(self, max_bytes: int) -> Ask:
        """What to ask its broker for."""
        epoch = self.place.leader_epoch if self.place is not None else -1
        return Ask(self.offset, max_bytes, epoch, self.topic_id, self.read_epoch)

    def take_away(self) -> None:
        """From where it is: answers that are on their way do not matter any more."""
        self.version += 1
