"""Each topic by itself: neighbouring partitions to each member."""

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
    """Partitions of the same number go to the same member, where the same members read topics.

    Where racks tell partitions apart, members first choose among those that are near. Topics of
    the same size with the same readers stay together also then: near is who is near to all of them.
    """

    name = "range"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> Assignment:
        """In each topic, the first members get one more where it does not divide evenly."""
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
    """How far a topic is divided."""

    def __init__(
        self, partitions: Sequence[TopicPartition], members: Sequence[str], nearness: RackAwareness
    ) -> None:
        self.partitions = partitions
        self.nearness = nearness
        self.given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        self._free = dict.fromkeys(partitions)
        self._share, self._more = divmod(len(partitions), len(members))

    def room(self, member: str) -> int:
        """How many partitions it may still get."""
        return max(0, self._share + (self._more > 0) - len(self.given[member]))

    def is_far(self, member: str, number: int) -> bool:
        """Whether no replica of that partition is in the member's rack."""
        return self.nearness.far(member, self.partitions[number])

    def give(self, member: str, partitions: Sequence[TopicPartition]) -> None:
        """Let it have these."""
        self.given[member] += partitions
        self._more -= bool(partitions) and len(self.given[member]) > self._share
        for partition in partitions:
            del self._free[partition]

    def give_ranges(
        self, suits: Callable[[str, TopicPartition], bool] = lambda member, partition: True
    ) -> None:
        """To each member the first that suit it, as many as it may have."""
        for member in self.given:
            suitable = (partition for partition in self._free if suits(member, partition))
            self.give(member, list(islice(suitable, self.room(member))))

    def give_near(self) -> None:
        """The same, but nothing to members that are far."""
        self.give_ranges(lambda member, partition: not self.nearness.far(member, partition))


def _alike(topics: Sequence[_Topic]) -> list[list[_Topic]]:
    """Topics of the same size that are read by the same members, together."""
    found: dict[tuple[object, ...], list[_Topic]] = {}
    for topic in topics:
        if topic.nearness.homes:
            found.setdefault((len(topic.partitions), *topic.given), []).append(topic)
    return list(found.values())


def _choose_near(topics: Sequence[_Topic]) -> None:
    """The same numbers of all these topics to the first member that is far from none of them."""
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
