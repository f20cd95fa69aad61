"""The round-robin assignor: the partitions of all topics to members in turn."""

from collections.abc import Mapping
from itertools import cycle

from asyncconsumer.group.assignors.protocol import (
    Assignment,
    Assignor,
    MemberSubscription,
    Racks,
    existing,
    in_order,
)
from asyncconsumer.protocol.java_hash import utf16
from asyncconsumer.types import TopicPartition


class RoundRobinAssignor(Assignor):
    """An assignor that assigns partitions to members in turn, skipping non-subscribers."""

    name = "roundrobin"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> Assignment:
        """Assign topics in the order of their names. A skipped member loses that turn."""
        assignment: Assignment = {member: [] for member in subscriptions}
        topics = {member: set(subscriptions[member].topics) for member in subscriptions}
        circle = cycle(in_order(subscriptions))
        counts = existing(partitions, subscriptions)
        for topic in sorted(counts, key=utf16):
            for number in range(counts[topic]):
                member = next(member for member in circle if topic in topics[member])
                assignment[member].append(TopicPartition(topic, number))
        return assignment
