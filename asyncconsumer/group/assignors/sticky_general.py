"""Sticky assignment for members with different subscriptions.

Members keep their partitions, and free ones go to the member with the fewest. Then partitions move
one by one from members with more to members with fewer, while that improves the balance. If racks
matter, members keep only partitions with a replica in their rack. Free partitions go to members
whose rack has a replica, if there are any. As in Java, the balancing step ignores racks.
"""

from collections.abc import Mapping, Sequence

from asyncconsumer.group.assignors.claims import OwnershipClaims
from asyncconsumer.group.assignors.protocol import PartitionsByMember
from asyncconsumer.group.assignors.racks import NO_RACKS, RackAwareness
from asyncconsumer.protocol.java_hash import bucket, buckets, partition_hash, utf16
from asyncconsumer.types import TopicPartition


def assign_general(
    partitions: Mapping[str, int],
    reading: Mapping[str, Sequence[str]],
    claims: OwnershipClaims,
    awareness: RackAwareness = NO_RACKS,
) -> PartitionsByMember:
    """Return the assignment for members with different subscriptions.

    `partitions` has the number of partitions of each topic, and `reading` the subscribers of each
    topic.
    """
    topics = sorted(partitions, key=lambda topic: (len(reading[topic]), utf16(topic)))
    everything = [TopicPartition(topic, n) for topic in topics for n in range(partitions[topic])]
    loads = _OpenAssignment(reading, claims, awareness)
    stayed = set(loads.owner)
    free = [partition for partition in everything if partition not in stayed]
    far = free
    if awareness.member_racks:
        far = [p for p in free if not loads.assign_near(p, awareness)]
    for partition in far:
        loads.assign(partition, loads.least(partition.topic))

    before, unevenness = loads.assignment(), loads.unevenness()
    balancing = _Balancing(loads, claims.previous)
    if len(stayed) == sum(map(len, claims.held.values())):
        # nothing is revoked so far: moving the free partitions may suffice
        balancing.run(free)
    moved = balancing.run(everything)
    no_better = moved and stayed and loads.unevenness() >= unevenness
    return before if no_better else loads.assignment()


class _OpenAssignment:
    """The assignment while it is computed, with the owner of each partition."""

    def __init__(
        self,
        reading: Mapping[str, Sequence[str]],
        claims: OwnershipClaims,
        awareness: RackAwareness,
    ) -> None:
        self.readers = {topic: sorted(members, key=utf16) for topic, members in reading.items()}
        subscribed = {(topic, member) for topic in reading for member in reading[topic]}
        self.held = {
            member: {
                p: None
                for p in held
                if (p.topic, member) in subscribed and not awareness.is_far(member, p)
            }
            for member, held in claims.held.items()
        }
        self.owner = {p: member for member, held in self.held.items() for p in held}
        shared = [topic for topic, members in reading.items() if len(members) > 1]
        self._movers = {member for topic in shared for member in reading[topic]}

    def load(self, member: str) -> int:
        """Return the number of partitions of the member."""
        return len(self.held[member])

    def least(self, topic: str) -> str:
        """Return the topic's subscriber with the fewest partitions.

        If several have the fewest, return the one with the lowest member id.
        """
        return min(self.readers[topic], key=self.load)

    def assign_near(self, partition: TopicPartition, awareness: RackAwareness) -> bool:
        """Assign the partition to the least loaded subscriber that is not far from it.

        Return False, and assign nothing, if all subscribers are far.
        """
        readers = self.readers[partition.topic]
        suitable = [member for member in readers if not awareness.is_far(member, partition)]
        if suitable:
            self.assign(partition, min(suitable, key=self.load))
        return bool(suitable)

    def assign(self, partition: TopicPartition, member: str) -> None:
        """Assign the partition to the member, and remove it from its previous owner."""
        if (previous := self.owner.get(partition)) is not None:
            del self.held[previous][partition]
        self.held[member][partition] = None
        self.owner[partition] = member

    def unevenness(self) -> int:
        """Return the sum of the differences in load between all pairs of members.

        Only members that have a topic with other subscribers count, because only their load can
        change.
        """
        loads = sorted(map(self.load, self._movers))
        return sum((2 * place - len(loads) + 1) * load for place, load in enumerate(loads))

    def assignment(self) -> PartitionsByMember:
        """Return a copy of the current assignment: the partitions of each member."""
        return {member: list(held) for member, held in self.held.items()}


class _Balancing:
    """The balancing step. It moves partitions one by one and remembers the moves."""

    def __init__(self, loads: _OpenAssignment, previous: Mapping[TopicPartition, str]) -> None:
        self._loads = loads
        self._previous = previous
        self._origin: dict[TopicPartition, str] = {}
        self._moved: dict[tuple[str, str, str], _Moved] = {}  # by topic, origin and owner

    def run(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions until no move improves the balance. Return whether any was moved."""
        movable = [p for p in partitions if len(self._loads.readers[p.topic]) > 1]
        moved = False
        # a few rounds suffice, but in some groups moves undo each other forever, and the Java
        # assignor does not terminate
        for _ in range(len(movable)):
            if not self._run_round(movable):
                break
            moved = True
        return moved

    def _run_round(self, partitions: Sequence[TopicPartition]) -> bool:
        moved = False
        for partition in partitions:
            if (better := self._better_owner(partition)) is not None:
                self._move(partition, better)
                moved = True
        return moved

    def _better_owner(self, partition: TopicPartition) -> str | None:
        """Return the member to which the partition should move, or None if it should stay.

        The member must have at least two partitions fewer than the current owner. The previous
        owner is preferred, then the least loaded subscriber.
        """
        loads, readers = self._loads, self._loads.readers[partition.topic]
        limit = loads.load(loads.owner[partition]) - 1
        previous = self._previous.get(partition)
        # Java also gives it back to a previous owner that no longer subscribes
        if previous is not None and previous in readers and loads.load(previous) < limit:
            return previous
        least = loads.least(partition.topic)
        return least if loads.load(least) < limit else None

    def _move(self, partition: TopicPartition, member: str) -> None:
        """Move the partition to the member.

        If another partition of the topic has moved the opposite way, move that one back instead.
        """
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
        self._loads.assign(partition, member)


class _Moved:
    """The moved partitions of one topic, in the iteration order of a Java `HashSet`."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, None] = {}
        self._max_size = 0  # a `HashSet` never shrinks its table

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: TopicPartition) -> None:
        self._partitions[partition] = None
        self._max_size = max(self._max_size, len(self._partitions))

    def discard(self, partition: TopicPartition) -> None:
        self._partitions.pop(partition, None)

    def first(self) -> TopicPartition:
        count = buckets(self._max_size)
        return min(self._partitions, key=lambda p: bucket(partition_hash(p), count))
