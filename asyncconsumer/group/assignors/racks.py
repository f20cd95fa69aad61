"""Rack awareness (KIP-881): a member is near a partition that has a replica in its rack."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from asyncconsumer.group.assignors.protocol import MemberSubscription, Racks
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class RackAwareness:
    """The racks of members and replicas. A member without a rack is neither near nor far."""

    homes: Mapping[str, str]
    """The rack of each member that has one."""
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
        """Build the rack awareness of these members and partitions."""
        told = {member: subscriptions[member].rack_id for member in members}
        homes = {member: rack for member, rack in told.items() if rack}
        if not homes or not racks:
            return cls({}, {})
        return cls(homes, {one: frozenset(racks.get(one, ())) for one in partitions})

    @property
    def matters(self) -> bool:
        """Whether the racks of partitions differ and some member is in one of these racks."""
        everywhere = frozenset[str]().union(*self.places.values())
        return not everywhere.isdisjoint(self.homes.values()) and any(
            place != everywhere for place in self.places.values()
        )

    def near(self, member: str, partition: TopicPartition) -> bool:
        """Return whether the partition has a replica in the member's rack."""
        home = self.homes.get(member)
        return home is not None and home in self.places[partition]

    def far(self, member: str, partition: TopicPartition) -> bool:
        """Return whether the member has a rack without a replica of the partition."""
        return member in self.homes and not self.near(member, partition)

    def next_near(
        self, members: Sequence[str], partition: TopicPartition, first: int = 0
    ) -> int | None:
        """Return the index of the next near member, cyclically from `first`; None if none is."""
        places = chain(range(first, len(members)), range(first))
        return next((place for place in places if self.near(members[place], partition)), None)

    def fewest_near_first(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions sorted by their number of near members, fewest first."""
        crowd = Counter(self.homes.values())
        return sorted(partitions, key=lambda p: sum(crowd[rack] for rack in self.places[p]))


NOWHERE = RackAwareness({}, {})
"""The rack awareness of groups in which racks do not matter."""
