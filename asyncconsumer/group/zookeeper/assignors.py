"""The assignors of ZooKeeper groups, as pure functions.

Each member computes the same assignment from the same znodes. So orders and hashes must equal those
of Kafka's Scala code exactly. An assignor takes a `GroupInfo` and returns the assignment of the
whole group.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

from asyncconsumer.errors import UnevenSubscriptions
from asyncconsumer.group.zookeeper.sticky import sticky
from asyncconsumer.protocol.java_hash import string_hash, utf16
from asyncconsumer.types import TopicPartition

P = TypeVar("P")

OwnerByPartition = dict[TopicPartition, str]
"""The thread that owns each partition, in the order of topics and partitions."""


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """A registered consumer, with its number of streams for each topic.

    For a wildcard subscription these are the topics that the pattern matches.
    """

    consumer_id: str
    streams: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """The input of an assignor.

    `partitions` has the partitions of every subscribed topic. Topics that do not exist may be left
    out. `owners` has the thread that owned each partition before. Only the assignor `sticky` uses
    `owners`.
    """

    members: Collection[GroupMemberInfo]
    partitions: Mapping[str, Collection[int]]
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)

    def subscriptions(self) -> dict[str, list[str]]:
        """Return the ids of the consumer threads that read each topic.

        Topics and threads are in Java's string order. Topics with the same readers share one list
        object, so that large groups need little memory.
        """
        sharing: defaultdict[int, list[str]] = defaultdict(list)
        for member in self.members:
            sharing[id(member.streams)].append(member.consumer_id)
        shared: dict[Readers, list[str]] = {}
        threads_by_topic: dict[str, list[str]] = {}
        for topic, readers in sorted(self._readers().items(), key=lambda item: utf16(item[0])):
            if readers not in shared:
                threads = {
                    f"{consumer_id}-{number}"
                    for key, count in readers
                    for consumer_id in sharing[key]
                    for number in range(count)
                }
                shared[readers] = sorted(threads, key=utf16)
            threads_by_topic[topic] = shared[readers]
        return threads_by_topic

    def _readers(self) -> dict[str, "Readers"]:
        """Return for each topic the subscriptions that include it, with their numbers of streams.

        Members with equal topics share one `streams` mapping. Its `id()` stands for the
        subscription.
        """
        different = {id(member.streams): member.streams for member in self.members}
        readers_by_topic: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for key, streams in different.items():
            for topic, count in streams.items():
                readers_by_topic[topic].append((key, count))
        return {topic: tuple(readers) for topic, readers in readers_by_topic.items()}

    def subscribed_partitions(
        self, subscriptions: Mapping[str, Sequence[str]] | None = None
    ) -> list[TopicPartition]:
        """Return the partitions of all subscribed topics, ordered by topic and number.

        A caller that has the result of `subscriptions()` passes it, because it is slow to compute.
        """
        return [
            TopicPartition(topic, partition)
            for topic, threads in (subscriptions or self.subscriptions()).items()
            if threads
            for partition in sorted(set(self.partitions.get(topic, ())))
        ]


Readers: TypeAlias = tuple[tuple[int, int], ...]
"""The subscriptions that include a topic, each with its number of streams."""
Strategy = Callable[[GroupInfo], OwnerByPartition]


def by_range(group: GroupInfo) -> OwnerByPartition:
    """Assign consecutive partitions of each topic to each consumer thread.

    If the partitions do not divide evenly, the first threads get one more.
    """
    assignment: OwnerByPartition = {}
    for topic, threads in group.subscriptions().items():
        numbers = sorted(set(group.partitions.get(topic, ())))
        for number, thread in _ranges(numbers, threads):
            assignment[TopicPartition(topic, number)] = thread
    return assignment


def round_robin(group: GroupInfo) -> OwnerByPartition:
    """Assign the partitions of all topics to threads in turn, as Kafka 1.0 and 1.1 do."""
    return _assign_in_turn(group, "{0}-{1}".format)


def round_robin_0_10(group: GroupInfo) -> OwnerByPartition:
    """Assign the partitions of all topics to threads in turn, as Kafka 0.10 and 0.11 do.

    Later releases use another order.
    """
    return _assign_in_turn(group, "[{0},{1}]".format)


def round_robin_0_8(group: GroupInfo) -> OwnerByPartition:
    """Assign the partitions of all topics to threads in turn, as Kafka 0.8.2 and 0.9 do.

    The result is that of `round_robin_0_10`. Raise `UnevenSubscriptions` unless every thread reads
    every topic.
    """
    (first, expected), *others = list(group.subscriptions().items()) or [("", [])]
    for topic, threads in others:
        if uneven := set(threads) ^ set(expected):
            thread = min(uneven, key=utf16)
            read, unread = (topic, first) if thread in threads else (first, topic)
            raise UnevenSubscriptions(f"{thread} reads {read!r} but not {unread!r}")
    return round_robin_0_10(group)


def _assign_in_turn(group: GroupInfo, text: Callable[[str, int], str]) -> OwnerByPartition:
    """Assign the partitions to their readers in turn, ordered by the hash of `text(partition)`.

    A thread that does not read the topic loses its turn. Kafka's own members do not agree on the
    order of texts with equal hashes.
    """
    subscriptions = group.subscriptions()
    circle = sorted(set().union(*subscriptions.values()), key=utf16)
    places = {thread: place for place, thread in enumerate(circle)}
    turns = {id(r): [places[thread] for thread in r] for r in subscriptions.values()}
    turn = 0
    partitions = group.subscribed_partitions(subscriptions)
    assignment: OwnerByPartition = {}
    for partition in sorted(partitions, key=lambda p: string_hash(text(*p))):
        may_have = turns[id(subscriptions[partition.topic])]
        following = bisect_left(may_have, turn % len(circle))
        # after the last thread, continue with the first
        place = may_have[following % len(may_have)]
        assignment[partition] = circle[place]
        turn = place + 1
    return {partition: assignment[partition] for partition in partitions}


class BrokerPartition(NamedTuple):
    """A partition in Jafka and Kafka 0.7, where each broker numbers its partitions from 0."""

    topic: str
    broker: int
    partition: int

    @property
    def name(self) -> str:
        """The name of the partition in ZooKeeper."""
        return f"{self.broker}-{self.partition}"


def by_broker_range(
    members: Collection[GroupMemberInfo], counts: Mapping[str, Mapping[int, int]]
) -> dict[BrokerPartition, str]:
    """Assign consecutive partitions to each thread as Jafka and Kafka 0.7 do, sorted by name.

    `counts` has the number of partitions of each topic on each broker. Names sort as strings:
    broker 10 comes before broker 2, and partition 10 before partition 2. The result maps each
    partition to its thread.
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
    """Yield each partition with its thread.

    Each thread gets consecutive partitions. If they do not divide evenly, the first threads get one
    more.
    """
    if not threads:
        return
    quota, extra = divmod(len(partitions), len(threads))
    start = 0
    for position, thread in enumerate(threads):
        end = start + quota + (position < extra)
        for partition in partitions[start:end]:
            yield partition, thread
        start = end


def consumer_of(thread_id: str) -> str:
    """Return the consumer id of a thread id, which is everything before the last dash."""
    return thread_id.rpartition("-")[0]


def partitions_of_consumer(consumer_id: str, assignment: Mapping[P, str]) -> dict[P, str]:
    """Return the partitions that an assignment gives to one consumer, with their threads."""
    return {p: thread for p, thread in assignment.items() if consumer_of(thread) == consumer_id}


def restricted_to(
    member: GroupMemberInfo, assignment: Mapping[TopicPartition, str]
) -> OwnerByPartition:
    """Return the group's assignment restricted to the topics of one member.

    A Scala consumer with the `range` assignor passes this to its listener.
    """
    return {p: thread for p, thread in assignment.items() if p.topic in member.streams}


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {
        "range": by_range,
        "roundrobin": round_robin,
        "roundrobin-0.10": round_robin_0_10,  # for groups with members of Kafka 0.10 or 0.11
        "roundrobin-0.8": round_robin_0_8,  # for groups with members of Kafka 0.8.2 or 0.9
        "sticky": sticky,  # not supported by Kafka's own members
    }
)
"""The strategies by their names in `partition.assignment.strategy`."""
