"""The range assignor: consecutive partitions of each topic to each member."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from asyncconsumer.group.assignors.protocol import (
    Assignment,
    Assignor,
    MemberSubscription,
    Racks,
    existing,
    readers,
)
from asyncconsumer.group.assignors.racks import RackAwareness
from asyncconsumer.protocol.java_hash import utf16
from asyncconsumer.types import TopicPartition


class RangeAssignor(Assignor):
    """An assignor that gives each member a range of consecutive partitions of each topic.

    Topics with the same subscribers and size are co-partitioned: equal numbers go to one member.
    Where racks matter, members first get partitions that are not far. Co-partitioned topics then
    stay together: a member must not be far from any of them.
    """

    name = "range"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> Assignment:
        """Assign consecutive partitions of each topic.

        The first members get one more if the partitions do not divide evenly.
        """
        reading = readers(subscriptions)
        topics = []
        for topic, count in existing(partitions, subscriptions).items():
            free = [TopicPartition(topic, number) for number in range(count)]
            nearness = RackAwareness.among(free, reading[topic], subscriptions, racks)
            topics.append(_Topic(free, reading[topic], nearness))
        by_rack = any(topic.nearness.matters for topic in topics)
        if by_rack:
            for together in _alike(topics):
                _choose_near(together)
        assignment: Assignment = {member: [] for member in subscriptions}
        for one in topics:
            one.give_ranges()
            for member, given in one.given.items():
                assignment[member] += given
        if by_rack:
            for given in assignment.values():
                given.sort(key=lambda partition: (utf16(partition.topic), partition.partition))
        return assignment


class _Topic:
    """A topic that is being assigned."""

    def __init__(
        self, partitions: Sequence[TopicPartition], members: Sequence[str], nearness: RackAwareness
    ) -> None:
        self.partitions = partitions
        self.nearness = nearness
        self.given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        self._free = dict.fromkeys(partitions)
        self._share, self._more = divmod(len(partitions), len(members))

    def room(self, member: str) -> int:
        """Return how many more partitions the member may get."""
        return max(0, self._share + (self._more > 0) - len(self.given[member]))

    def is_far(self, member: str, number: int) -> bool:
        """Return whether the member's rack has no replica of that partition."""
        return self.nearness.far(member, self.partitions[number])

    def give(self, member: str, partitions: Sequence[TopicPartition]) -> None:
        """Assign these partitions to the member."""
        self.given[member] += partitions
        self._more -= bool(partitions) and len(self.given[member]) > self._share
        for partition in partitions:
            del self._free[partition]

    def give_ranges(
        self, suits: Callable[[str, TopicPartition], bool] = lambda member, partition: True
    ) -> None:
        """Assign to each member the first free partitions that suit it, up to its quota."""
        for member in self.given:
            suitable = (partition for partition in self._free if suits(member, partition))
            self.give(member, list(islice(suitable, self.room(member))))

    def give_near(self) -> None:
        """Assign partitions as `give_ranges` does, but none to a member that is far from it."""
        self.give_ranges(lambda member, partition: not self.nearness.far(member, partition))


def _alike(topics: Sequence[_Topic]) -> list[list[_Topic]]:
    """Group topics that have the same size and the same subscribers."""
    found: dict[tuple[object, ...], list[_Topic]] = {}
    for topic in topics:
        if topic.nearness.homes:
            found.setdefault((len(topic.partitions), *topic.given), []).append(topic)
    return list(found.values())


def _choose_near(topics: Sequence[_Topic]) -> None:
    """Assign each number, in all these topics, to the first member that is far from none."""
    if len(topics) == 1:
        if topics[0].nearness.matters:
            topics[0].give_near()
        return
    for number in range(len(topics[0].partitions)):
        for member in topics[0].given:
            if topics[0].room(member) and not any(topic.is_far(member, number) for topic in topics):
                for topic in topics:
                    topic.give(member, [topic.partitions[number]])
                break
