"""Who reads which partition, as the classic ZooKeeper consumer divides them. Pure functions.

No member of such a group is told its partitions: each works out the same assignment from the same
nodes in ZooKeeper. So orders and hashes here are those of Kafka's Scala code, to the last detail.
A strategy takes a `GroupInfo` and returns the assignment of the whole group.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from asyncconsumer.errors import UnevenSubscriptions
from asyncconsumer.protocol.java_hash import string_hash, utf16
from asyncconsumer.types import TopicPartition

P = TypeVar("P")

Assignment = dict[TopicPartition, str]
"""The thread that owns each partition, in the order of topics and partitions."""


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """One registered consumer: how many streams of each topic it has.

    A wildcard subscription stands here as the topics that it matches.
    """

    consumer_id: str
    streams: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """All that an assignment follows from.

    `partitions` are those of every topic that a member subscribes to; a topic that does not exist
    may be left out. `owners` are the threads that had the partitions before: only `sticky` asks.
    """

    members: Collection[GroupMemberInfo]
    partitions: Mapping[str, Collection[int]]
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)

    def subscriptions(self) -> dict[str, list[str]]:
        """The threads that read each topic, both in Java's order of texts.

        Topics with the same readers share one list: a group of many topics usually has few lists.
        """
        sharing: defaultdict[int, list[str]] = defaultdict(list)
        for member in self.members:
            sharing[id(member.streams)].append(member.consumer_id)
        shared: dict[Readers, list[str]] = {}
        found: dict[str, list[str]] = {}
        for topic, readers in sorted(self._readers().items(), key=lambda item: utf16(item[0])):
            if readers not in shared:
                threads = {
                    f"{consumer_id}-{number}"
                    for key, count in readers
                    for consumer_id in sharing[key]
                    for number in range(count)
                }
                shared[readers] = sorted(threads, key=utf16)
            found[topic] = shared[readers]
        return found

    def _readers(self) -> dict[str, "Readers"]:
        """Who reads each topic: which of the different subscriptions, with how many streams."""
        different = {id(member.streams): member.streams for member in self.members}
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for key, streams in different.items():
            for topic, count in streams.items():
                found[topic].append((key, count))
        return {topic: tuple(readers) for topic, readers in found.items()}

    def wanted(
        self, subscriptions: Mapping[str, Sequence[str]] | None = None
    ) -> list[TopicPartition]:
        """The partitions that a member subscribes to, by topic and number."""
        return [
            TopicPartition(topic, partition)
            for topic, threads in (subscriptions or self.subscriptions()).items()
            if threads
            for partition in sorted(set(self.partitions.get(topic, ())))
        ]


Readers: TypeAlias = tuple[tuple[int, int], ...]
"""Subscriptions that have a topic, and how many streams of it."""
Strategy = Callable[[GroupInfo], Assignment]


def by_range(group: GroupInfo) -> Assignment:
    """Each topic by itself: neighbouring partitions to each thread, the first ones one more."""
    assignment: Assignment = {}
    for topic, threads in group.subscriptions().items():
        numbers = sorted(set(group.partitions.get(topic, ())))
        for number, thread in _ranges(numbers, threads):
            assignment[TopicPartition(topic, number)] = thread
    return assignment


def round_robin(group: GroupInfo) -> Assignment:
    """All topics together, one partition after the other, as Kafka 1.0 and 1.1 go round."""
    return _go_round(group, "{0}-{1}".format)


def round_robin_0_10(group: GroupInfo) -> Assignment:
    """As Kafka 0.10 and 0.11 go round: in another order of partitions than later releases."""
    return _go_round(group, "[{0},{1}]".format)


def round_robin_0_8(group: GroupInfo) -> Assignment:
    """As Kafka 0.8.2 and 0.9: the same order, but only where every thread reads every topic."""
    (first, expected), *others = list(group.subscriptions().items()) or [("", [])]
    for topic, threads in others:
        if uneven := set(threads) ^ set(expected):
            thread = min(uneven, key=utf16)
            has, has_not = (topic, first) if thread in threads else (first, topic)
            raise UnevenSubscriptions(f"{thread} reads {has!r} but not {has_not!r}")
    return round_robin_0_10(group)


def _go_round(group: GroupInfo, text: Callable[[str, int], str]) -> Assignment:
    """Deal the partitions, in the order of the hash of their text, to those who may have them.

    The turn passes over a thread that does not read the topic and does not come back to it. Two
    texts of the same hash are in no order that Kafka's own members would agree on.
    """
    subscriptions = group.subscriptions()
    circle = sorted(set().union(*subscriptions.values()), key=utf16)
    places = {thread: place for place, thread in enumerate(circle)}
    turns = {id(threads): [places[one] for one in threads] for threads in subscriptions.values()}
    turn = 0
    partitions = group.wanted(subscriptions)
    assignment: Assignment = {}
    for partition in sorted(partitions, key=lambda p: string_hash(text(*p))):
        may_have = turns[id(subscriptions[partition.topic])]
        following = bisect_left(may_have, turn % len(circle))
        place = may_have[following % len(may_have)]  # behind the last it begins again
        assignment[partition] = circle[place]
        turn = place + 1
    return {partition: assignment[partition] for partition in partitions}


class BrokerPartition(NamedTuple):
    """A partition of Jafka and of Kafka 0.7, where each broker numbers its own from 0."""

    topic: str
    broker: int
    partition: int

    @property
    def name(self) -> str:
        """What it is called in ZooKeeper."""
        return f"{self.broker}-{self.partition}"


def by_broker_range(
    members: Collection[GroupMemberInfo], counts: Mapping[str, Mapping[int, int]]
) -> dict[BrokerPartition, str]:
    """Ranges as Jafka (and Kafka 0.7) has them: each topic's partitions, sorted by name.

    `counts` tells how many partitions of a topic each broker has. Names sort as texts: broker 10
    comes before broker 2, and partition 10 before partition 2.
    """
    assignment: dict[BrokerPartition, str] = {}
    for topic, threads in GroupInfo(members, {}).subscriptions().items():
        partitions = [
            BrokerPartition(topic, broker, number)
            for broker, count in counts.get(topic, {}).items()
            for number in range(count)
        ]
        assignment.update(_ranges(sorted(partitions, key=lambda p: p.name), threads))
    return assignment


def _ranges(partitions: Sequence[P], threads: Sequence[str]) -> Iterator[tuple[P, str]]:
    """Each thread's share in one piece; what does not divide goes to the first threads."""
    if not threads:
        return
    share, more = divmod(len(partitions), len(threads))
    start = 0
    for position, thread in enumerate(threads):
        end = start + share + (position < more)
        for partition in partitions[start:end]:
            yield partition, thread
        start = end


def consumer_of(thread_id: str) -> str:
    """The consumer id in a thread id: all before the last dash."""
    return thread_id.rpartition("-")[0]


def part_of(consumer_id: str, assignment: Mapping[P, str]) -> dict[P, str]:
    """The partitions that are one consumer's own."""
    return {p: thread for p, thread in assignment.items() if consumer_of(thread) == consumer_id}


def seen_by(member: GroupMemberInfo, assignment: Mapping[TopicPartition, str]) -> Assignment:
    """What a classic member with `range` tells its listener: the group, but only its own topics."""
    return {p: thread for p, thread in assignment.items() if p.topic in member.streams}
