"""Which members are near a partition: those in a rack where it has a replica (KIP-881)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from asyncconsumer.group.assignors.protocol import MemberSubscription, Racks
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class RackAwareness:
    """Where members and replicas are. Without racks nobody is near, and nobody is far."""

    homes: Mapping[str, str]
    """The rack of each member that tells one."""
    places: Mapping[TopicPartition, frozenset[str]]
    """The racks in which each partition has a replica."""

    @classmethod
    def among(
        cls,
        partitions: Iterable[TopicPartition],
        members: Iterable[str],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None,
    ) -> "RackAwareness":
        """That of some members to some partitions."""
        told = {member: subscriptions[member].rack_id for member in members}
        homes = {member: rack for member, rack in told.items() if rack}
        if not homes or not racks:
            return cls({}, {})
        return cls(homes, {one: frozenset(racks.get(one, ())) for one in partitions})

    @property
    def matters(self) -> bool:
        """Whether racks tell partitions apart, and some member is in one of them."""
        everywhere = frozenset[str]().union(*self.places.values())
        return not everywhere.isdisjoint(self.homes.values()) and any(
            place != everywhere for place in self.places.values()
        )

    def near(self, member: str, partition: TopicPartition) -> bool:
        """Whether there is a replica in the member's rack."""
        home = self.homes.get(member)
        return home is not None and home in self.places[partition]

    def far(self, member: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack, and no replica is there."""
        return member in self.homes and not self.near(member, partition)

    def next_near(
        self, members: Sequence[str], partition: TopicPartition, first: int = 0
    ) -> int | None:
        """The place of the next member that is near, round from that place on; None: nobody is."""
        places = chain(range(first, len(members)), range(first))
        return next((place for place in places if self.near(members[place], partition)), None)

    def fewest_near_first(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that few members are near to should choose first."""
        crowd = Counter(self.homes.values())
        return sorted(partitions, key=lambda p: sum(crowd[rack] for rack in self.places[p]))


NOWHERE = RackAwareness({}, {})
"""Of groups in which racks do not matter."""
