"""Sticky assignment for members with equal subscriptions. Their loads differ by at most one."""

from collections import deque
from collections.abc import Iterable, Mapping

from asyncconsumer.group.assignors.claims import OwnershipClaims
from asyncconsumer.group.assignors.protocol import PartitionsByMember
from asyncconsumer.group.assignors.racks import NO_RACKS, RackAwareness
from asyncconsumer.protocol.java_hash import utf16
from asyncconsumer.types import TopicPartition, partitions_of


def assign_uniform(
    partitions: Mapping[str, int], claims: OwnershipClaims, awareness: RackAwareness = NO_RACKS
) -> PartitionsByMember:
    """Return the assignment for members with equal subscriptions.

    Members keep partitions up to their quota, then get more in turn. If racks matter, members keep
    only partitions with a replica in their rack. Free partitions first go to members whose rack has
    a replica.
    """
    everything = [
        partition
        for topic in sorted(partitions, key=utf16)
        for partition in partitions_of(topic, range(partitions[topic]))
    ]
    quota, extra = divmod(len(everything), len(claims.held))
    assignment: PartitionsByMember = {}
    for member, held in claims.held.items():
        retained = [
            p for p in held if p not in claims.contested and not awareness.is_far(member, p)
        ]
        retained.sort(key=lambda p: (p.partition, utf16(p.topic)))
        # `extra` members may keep one more partition: the first that have more than the quota
        one_more = extra > 0 and len(retained) > quota
        extra -= one_more
        assignment[member] = retained[: quota + one_more]

    retained_by_all = {partition for partitions in assignment.values() for partition in partitions}
    free = [partition for partition in everything if partition not in retained_by_all]
    filling = _QuotaFilling(assignment, quota, extra)
    if awareness.member_racks:
        free = filling.assign_near(awareness.fewest_near_first(free), awareness)
    filling.assign_in_turn(free)
    return assignment


class _QuotaFilling:
    """The members that may get more partitions while an assignment is computed.

    Each member may get `quota` partitions, and `extra` members may get one more.
    """

    def __init__(self, assignment: PartitionsByMember, quota: int, extra: int) -> None:
        self._assignment = assignment
        self._quota = quota
        self._extra = extra
        self._below_quota = self._with_load(range(quota))
        self._at_quota = self._with_load(range(quota, quota + 1)) if extra else []

    def _with_load(self, count: range) -> list[str]:
        members = (m for m, tps in self._assignment.items() if len(tps) in count)
        return sorted(members, key=utf16)

    def assign_near(
        self, partitions: Iterable[TopicPartition], awareness: RackAwareness
    ) -> list[TopicPartition]:
        """Assign each partition to a member whose rack has a replica of it. Members take turns.

        Return the partitions that no such member may get.
        """
        unassigned: list[TopicPartition] = []
        turn = 0
        for partition in partitions:
            if (place := awareness.next_near(self._below_quota, partition, turn)) is not None:
                self._assignment[self._below_quota[place]].append(partition)
                place += not self._remove_if_full(place)
                turn = place % len(self._below_quota) if self._below_quota else 0
            elif (place := awareness.next_near(self._at_quota, partition)) is not None:
                self._assignment[self._at_quota.pop(place)].append(partition)
                self._extra -= 1
                if not self._extra:
                    self._at_quota.clear()
            else:
                unassigned.append(partition)
        return unassigned

    def _remove_if_full(self, place: int) -> bool:
        """Remove the member at index `place` if it has its quota. Return whether it was removed."""
        if len(self._assignment[self._below_quota[place]]) < self._quota:
            return False
        member = self._below_quota.pop(place)
        if self._extra:
            self._at_quota.append(member)
        return True

    def assign_in_turn(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign the partitions in turn, one at a time, to the members that may get more."""
        below_quota, at_quota = deque(self._below_quota), deque(self._at_quota)
        for partition in partitions:
            member = (below_quota or at_quota).popleft()
            assigned = self._assignment[member]
            assigned.append(partition)
            if len(assigned) < self._quota:
                below_quota.append(member)
            elif len(assigned) == self._quota:
                at_quota.append(member)
