"""The round-robin assignor. It gives the partitions of all topics to the members in turn."""

from collections.abc import Mapping
from itertools import cycle

from asyncconsumer.group.assignors.protocol import (
    Assignor,
    MemberSubscription,
    PartitionsByMember,
    Racks,
    existing,
    in_order,
)
from asyncconsumer.protocol.java_hash import utf16
from asyncconsumer.types import TopicPartition


class RoundRobinAssignor(Assignor):
    """An assignor that gives the partitions of all topics to the members in turn.

    It skips members that do not subscribe to the topic of the partition.
    """

    name = "roundrobin"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> PartitionsByMember:
        """Return an assignment in which members get partitions in turn, by topic name and number.

        A member that does not subscribe to the topic loses its turn.
        """
        assignment: PartitionsByMember = {member: [] for member in subscriptions}
        topics = {member: set(subscriptions[member].topics) for member in subscriptions}
        circle = cycle(in_order(subscriptions))
        counts = existing(partitions, subscriptions)
        for topic in sorted(counts, key=utf16):
            for number in range(counts[topic]):
                member = next(member for member in circle if topic in topics[member])
                assignment[member].append(TopicPartition(topic, number))
        return assignment
