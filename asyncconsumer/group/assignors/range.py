"""The range assignor. It gives each member consecutive partitions of each topic."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from asyncconsumer.group.assignors.protocol import (
    Assignor,
    MemberSubscription,
    PartitionsByMember,
    Racks,
    existing,
    readers,
)
from asyncconsumer.group.assignors.racks import RackAwareness
from asyncconsumer.protocol.java_hash import utf16
from asyncconsumer.types import TopicPartition


class RangeAssignor(Assignor):
    """An assignor that gives each member a range of consecutive partitions of each topic.

    Topics with the same subscribers and the same number of partitions are co-partitioned. A member
    that gets partition 3 of one of them gets partition 3 of all of them. If racks matter, a member
    first gets numbers whose partitions all have a replica in its rack.
    """

    name = "range"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> PartitionsByMember:
        """Return an assignment with consecutive partitions of each topic for each member.

        If the partitions do not divide evenly, the first members get one more.
        """
        reading = readers(subscriptions)
        topics = []
        for name, count in existing(partitions, subscriptions).items():
            free = [TopicPartition(name, number) for number in range(count)]
            awareness = RackAwareness.create(free, reading[name], subscriptions, racks)
            topics.append(_PendingTopic(free, reading[name], awareness))
        by_rack = any(topic.awareness.matters for topic in topics)
        if by_rack:
            for together in _co_partitioned(topics):
                _assign_near(together)
        assignment: PartitionsByMember = {member: [] for member in subscriptions}
        for topic in topics:
            topic.assign_ranges()
            for member, tps in topic.assigned.items():
                assignment[member] += tps
        if by_rack:
            for tps in assignment.values():
                tps.sort(key=lambda partition: (utf16(partition.topic), partition.partition))
        return assignment


class _PendingTopic:
    """A topic whose partitions are being assigned to its subscribers."""

    def __init__(
        self, partitions: Sequence[TopicPartition], members: Sequence[str], awareness: RackAwareness
    ) -> None:
        self.partitions = partitions
        self.awareness = awareness
        self.assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        self._free = dict.fromkeys(partitions)
        self._quota, self._extra = divmod(len(partitions), len(members))

    def remaining_quota(self, member: str) -> int:
        """Return how many more partitions of this topic the member may get."""
        return max(0, self._quota + (self._extra > 0) - len(self.assigned[member]))

    def is_far(self, member: str, number: int) -> bool:
        """Return whether the member's rack has no replica of the partition with this number."""
        return self.awareness.is_far(member, self.partitions[number])

    def assign(self, member: str, partitions: Sequence[TopicPartition]) -> None:
        self.assigned[member] += partitions
        self._extra -= bool(partitions) and len(self.assigned[member]) > self._quota
        for partition in partitions:
            del self._free[partition]

    def assign_ranges(
        self, accepts: Callable[[str, TopicPartition], bool] = lambda member, partition: True
    ) -> None:
        """Give each member the first free partitions that `accepts` allows, up to its quota."""
        for member in self.assigned:
            suitable = (partition for partition in self._free if accepts(member, partition))
            self.assign(member, list(islice(suitable, self.remaining_quota(member))))

    def assign_near(self) -> None:
        """Assign partitions as `assign_ranges` does, but to no member that is far from them.

        A member is far if it has a rack in which the partition has no replica.
        """
        self.assign_ranges(lambda member, partition: not self.awareness.is_far(member, partition))


def _co_partitioned(topics: Sequence[_PendingTopic]) -> list[list[_PendingTopic]]:
    """Return the topics in groups that have the same partition count and the same subscribers."""
    groups: dict[tuple[object, ...], list[_PendingTopic]] = {}
    for topic in topics:
        if topic.awareness.member_racks:
            groups.setdefault((len(topic.partitions), *topic.assigned), []).append(topic)
    return list(groups.values())


def _assign_near(topics: Sequence[_PendingTopic]) -> None:
    """Assign partitions to members that are not far from them, up to the members' quotas.

    `topics` are co-partitioned. A member gets a partition number of all topics, and only if it is
    far from none of these partitions.
    """
    if len(topics) == 1:
        if topics[0].awareness.matters:
            topics[0].assign_near()
        return
    for number in range(len(topics[0].partitions)):
        for member in topics[0].assigned:
            is_far = any(topic.is_far(member, number) for topic in topics)
            if topics[0].remaining_quota(member) and not is_far:
                for topic in topics:
                    topic.assign(member, [topic.partitions[number]])
                break
