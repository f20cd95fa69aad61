"""Each topic by itself: neighbouring partitions to each member."""

from collections.abc import Mapping

from asyncconsumer.group.assignors.protocol import (
    Assignment,
    Assignor,
    Racks,
    Subscription,
    existing,
    readers,
)
from asyncconsumer.model import TopicPartition


class RangeAssignor(Assignor):
    """Partitions of the same number go to the same member, where the same members read topics."""

    name = "range"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Racks | None = None,
    ) -> Assignment:
        """In each topic, the first members get one more where it does not divide evenly."""
        assignment: Assignment = {member: [] for member in subscriptions}
        reading = readers(subscriptions)
        for topic, count in existing(partitions, subscriptions).items():
            share, more = divmod(count, len(reading[topic]))
            end = 0
            for place, member in enumerate(reading[topic]):
                start, end = end, end + share + (place < more)
                assignment[member] += (TopicPartition(topic, n) for n in range(start, end))
        return assignment
