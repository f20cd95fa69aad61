"""Sticky division among members that want different topics.

Partitions stay where they are and free ones go to whoever has least. Then single partitions move
from members that have more to members that have less, as long as that evens them out. Where racks
matter only what is near stays, and free ones go to members that are not far, if there are any; but
when loads are evened out racks count for nothing, as in Java.
"""

from collections.abc import Mapping, Sequence

from asyncconsumer.group.assignors.claims import OwnershipClaims
from asyncconsumer.group.assignors.protocol import Assignment
from asyncconsumer.group.assignors.racks import NOWHERE, RackAwareness
from asyncconsumer.protocol.java_hash import bucket, buckets, partition_hash, utf16
from asyncconsumer.types import TopicPartition


def divide_uneven(
    partitions: Mapping[str, int],
    reading: Mapping[str, Sequence[str]],
    claims: OwnershipClaims,
    nearness: RackAwareness = NOWHERE,
) -> Assignment:
    """`reading` names the members that want each topic."""
    topics = sorted(partitions, key=lambda topic: (len(reading[topic]), utf16(topic)))
    everything = [TopicPartition(topic, n) for topic in topics for n in range(partitions[topic])]
    loads = _Loads(reading, claims, nearness)
    stayed = set(loads.owner)
    free = [partition for partition in everything if partition not in stayed]
    far = [p for p in free if not loads.give_near(p, nearness)] if nearness.homes else free
    for partition in far:
        loads.give(partition, loads.least(partition.topic))

    before, unevenness = loads.assignment(), loads.unevenness()
    evening_out = _Balancing(loads, claims.previous)
    if len(stayed) == sum(map(len, claims.held.values())):
        # nobody has to let go of anything yet: perhaps it is enough to move what is new
        evening_out.go_through(free)
    moved = evening_out.go_through(everything)
    in_vain = moved and stayed and loads.unevenness() >= unevenness
    return before if in_vain else loads.assignment()


class _Loads:
    """Who has what at the moment."""

    def __init__(
        self, reading: Mapping[str, Sequence[str]], claims: OwnershipClaims, nearness: RackAwareness
    ) -> None:
        self.readers = {topic: sorted(members, key=utf16) for topic, members in reading.items()}
        wanted = {(topic, member) for topic in reading for member in reading[topic]}
        self.held = {
            member: {
                p: None for p in held if (p.topic, member) in wanted and not nearness.far(member, p)
            }
            for member, held in claims.held.items()
        }
        self.owner = {p: member for member, held in self.held.items() for p in held}
        shared = [topic for topic, members in reading.items() if len(members) > 1]
        self._movers = {member for topic in shared for member in reading[topic]}

    def of(self, member: str) -> int:
        """How many partitions it has."""
        return len(self.held[member])

    def least(self, topic: str) -> str:
        """Who of those that read the topic has least; the first by name if there are several."""
        return min(self.readers[topic], key=self.of)

    def give_near(self, partition: TopicPartition, nearness: RackAwareness) -> bool:
        """Give it to who has least of those that are not far; False if all are."""
        readers = self.readers[partition.topic]
        suitable = [member for member in readers if not nearness.far(member, partition)]
        if suitable:
            self.give(partition, min(suitable, key=self.of))
        return bool(suitable)

    def give(self, partition: TopicPartition, member: str) -> None:
        """Let it have the partition, whoever had it before."""
        if (giver := self.owner.get(partition)) is not None:
            del self.held[giver][partition]
        self.held[member][partition] = None
        self.owner[partition] = member

    def unevenness(self) -> int:
        """The sum of the differences between any two members that could even each other out."""
        loads = sorted(map(self.of, self._movers))
        return sum((2 * place - len(loads) + 1) * load for place, load in enumerate(loads))

    def assignment(self) -> Assignment:
        """What everybody has."""
        return {member: list(held) for member, held in self.held.items()}


class _Balancing:
    """Moves partitions one by one, and knows those that have moved."""

    def __init__(self, loads: _Loads, previous: Mapping[TopicPartition, str]) -> None:
        self._loads = loads
        self._previous = previous
        self._origin: dict[TopicPartition, str] = {}
        self._moved: dict[tuple[str, str, str], _Moved] = {}  # by topic, origin and owner

    def go_through(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move what evens out the loads, again and again; whether anything moved."""
        movable = [p for p in partitions if len(self._loads.readers[p.topic]) > 1]
        moved = False
        # a few rounds do; but there are groups in which moves take each other back for ever, and
        # which the Java assignor does not come to an end with
        for _ in range(len(movable)):
            if not self._one_round(movable):
                break
            moved = True
        return moved

    def _one_round(self, partitions: Sequence[TopicPartition]) -> bool:
        moved = False
        for partition in partitions:
            if (better := self._better(partition)) is not None:
                self._move(partition, better)
                moved = True
        return moved

    def _better(self, partition: TopicPartition) -> str | None:
        """Who should have it instead: who had it before, or else who has least."""
        loads, readers = self._loads, self._loads.readers[partition.topic]
        too_many = loads.of(loads.owner[partition]) - 1
        previous = self._previous.get(partition)
        # Java gives it back to one that does not read the topic any more, too
        if previous is not None and previous in readers and loads.of(previous) < too_many:
            return previous
        least = loads.least(partition.topic)
        return least if loads.of(least) < too_many else None

    def _move(self, partition: TopicPartition, member: str) -> None:
        """Move it, or rather move one back that has come the other way."""
        topic, owner = partition.topic, self._loads.owner[partition]
        if came := self._moved.get((topic, member, self._origin.get(partition, owner))):
            partition = came.first()
            owner = self._loads.owner[partition]
        origin = self._origin.pop(partition, None)
        if origin is not None:
            self._moved[topic, origin, owner].discard(partition)
            if not self._moved[topic, origin, owner]:
                del self._moved[topic, origin, owner]
        origin = owner if origin is None else origin
        if origin != member:
            self._origin[partition] = origin
            self._moved.setdefault((topic, origin, member), _Moved()).add(partition)
        self._loads.give(partition, member)


class _Moved:
    """Partitions of one topic, in the order of a HashSet that they were put into."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, None] = {}
        self._most = 0  # a HashSet never becomes smaller again

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: TopicPartition) -> None:
        self._partitions[partition] = None
        self._most = max(self._most, len(self._partitions))

    def discard(self, partition: TopicPartition) -> None:
        self._partitions.pop(partition, None)

    def first(self) -> TopicPartition:
        count = buckets(self._most)
        return min(self._partitions, key=lambda p: bucket(partition_hash(p), count))
