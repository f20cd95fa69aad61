"""Rack awareness (KIP-881). A member is near a partition that has a replica in its rack.

A member with a rack is far from a partition without a replica in that rack. A member without a rack
is neither near nor far.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from asyncconsumer.group.assignors.protocol import MemberSubscription, Racks
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class RackAwareness:
    """The racks of members and replicas. A member without a rack is neither near nor far."""

    member_racks: Mapping[str, str]
    """The rack of each member that has one."""
    replica_racks: Mapping[TopicPartition, frozenset[str]]
    """The racks in which each partition has a replica."""

    @classmethod
    def create(
        cls,
        partitions: Iterable[TopicPartition],
        members: Iterable[str],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None,
    ) -> "RackAwareness":
        """Return the rack awareness for these members and partitions.

        `racks` has the racks of each partition's replicas.
        """
        racks_by_member = {member: subscriptions[member].rack_id for member in members}
        member_racks = {member: rack for member, rack in racks_by_member.items() if rack}
        if not member_racks or not racks:
            return cls({}, {})
        return cls(member_racks, {tp: frozenset(racks.get(tp, ())) for tp in partitions})

    @property
    def matters(self) -> bool:
        """Whether the racks of partitions differ and some member is in one of these racks."""
        everywhere = frozenset[str]().union(*self.replica_racks.values())
        return not everywhere.isdisjoint(self.member_racks.values()) and any(
            racks != everywhere for racks in self.replica_racks.values()
        )

    def is_near(self, member: str, partition: TopicPartition) -> bool:
        """Return whether the partition has a replica in the member's rack."""
        rack = self.member_racks.get(member)
        return rack is not None and rack in self.replica_racks[partition]

    def is_far(self, member: str, partition: TopicPartition) -> bool:
        """Return whether the member has a rack without a replica of the partition."""
        return member in self.member_racks and not self.is_near(member, partition)

    def next_near(
        self, members: Sequence[str], partition: TopicPartition, first: int = 0
    ) -> int | None:
        """Return the index of the next member near the partition, or None if no member is near.

        The search begins at the index `first` and continues at the start of `members`.
        """
        indexes = chain(range(first, len(members)), range(first))
        return next((i for i in indexes if self.is_near(members[i], partition)), None)

    def fewest_near_first(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions sorted by how many members are near them, fewest first."""
        members_in = Counter(self.member_racks.values())
        racks = self.replica_racks
        return sorted(partitions, key=lambda p: sum(members_in[rack] for rack in racks[p]))


NO_RACKS = RackAwareness({}, {})
"""The rack awareness of groups in which racks do not matter."""
