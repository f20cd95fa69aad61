"""The assigned partitions with their streams, and the last positions of revoked ones."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition


class PartitionRoute(NamedTuple):
    """The stream that reads an assigned partition, and the fetch target of the partition."""

    stream: Stream
    target: FetchTarget
    since: int  # differs for each assignment of the partition


class RevokedPosition(NamedTuple):
    """The last position of a partition that was revoked or lost."""

    since: int  # the value of `PartitionRoute.since`
    position: int  # offset after the last delivered record


class ListenerCall(NamedTuple):
    """The partitions for which a rebalance listener is being called. Otherwise both are empty."""

    starting: Collection[TopicPartition] = ()  # assigned partitions that are not fetched yet
    # stopped partitions that are not released yet, with their offsets
    releasing: Mapping[TopicPartition, int] = {}


class AssignedPartitions(dict[TopicPartition, PartitionRoute]):
    """The route of each assigned partition, and the last positions of revoked and lost ones."""

    def __init__(self) -> None:
        super().__init__()
        self.revoked: dict[TopicPartition, RevokedPosition] = {}
        self.ever_revoked: set[TopicPartition] = set()  # every partition ever in `revoked`

    def drop(self, partition: TopicPartition, position: int | None) -> None:
        """Remove a revoked or lost partition, and store its last position.

        If no record was delivered, `position` is None and nothing is stored.
        """
        routed = self.pop(partition)
        if position is not None:
            self.revoked[partition] = RevokedPosition(routed.since, position)
            self.ever_revoked.add(partition)
