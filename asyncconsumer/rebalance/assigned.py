"""What is ours, and what was."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition


class PartitionRoute(NamedTuple):
    """A partition that is read, and by whom."""

    stream: Stream
    wanted: FetchTarget
    since: int  # a number that is another whenever it becomes ours


class RevokedPosition(NamedTuple):
    """A partition that was read, and is not ours any more."""

    since: int  # as above
    position: int  # up to where it was handed out


class ListenerCall(NamedTuple):
    """What listeners are being told of."""

    starting: Collection[TopicPartition] = ()  # ours, and not read yet
    releasing: Mapping[TopicPartition, int] = {}  # ours still, and read no more; up to where


class AssignedPartitions(dict[TopicPartition, PartitionRoute]):
    """What is read now; and what was, of which something was handed out, the last time."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up: dict[TopicPartition, RevokedPosition] = {}
        self.begun_with: set[TopicPartition] = set()  # all that were ever given up so

    def give_up(self, partition: TopicPartition, position: int | None) -> None:
        """It was handed out up to there; None if nothing was."""
        routed = self.pop(partition)
        if position is not None:
            self.given_up[partition] = RevokedPosition(routed.since, position)
            self.begun_with.add(partition)
