"""Sticky assignment for members with equal subscriptions: loads differ by at most one."""

from collections import deque
from collections.abc import Iterable, Mapping

from asyncconsumer.group.assignors.claims import OwnershipClaims
from asyncconsumer.group.assignors.protocol import Assignment
from asyncconsumer.group.assignors.racks import NOWHERE, RackAwareness
from asyncconsumer.protocol.java_hash import utf16
from asyncconsumer.types import TopicPartition, partitions_of


def divide_alike(
    partitions: Mapping[str, int], claims: OwnershipClaims, nearness: RackAwareness = NOWHERE
) -> Assignment:
    """Return the assignment: members keep partitions up to their quota, then get more in turn.

    If racks matter, members keep only partitions that are not far. Free partitions first go to
    members that are near.
    """
    everything = [
        partition
        for topic in sorted(partitions, key=utf16)
        for partition in partitions_of(topic, range(partitions[topic]))
    ]
    share, rest = divmod(len(everything), len(claims.held))
    assignment: Assignment = {}
    for member, held in claims.held.items():
        kept = [p for p in held if p not in claims.contested and not nearness.far(member, p)]
        kept.sort(key=lambda p: (p.partition, utf16(p.topic)))
        # `rest` members may keep one more: the first that have it
        one_more = rest > 0 and len(kept) > share
        rest -= one_more
        assignment[member] = kept[: share + one_more]

    kept_by_all = {partition for kept in assignment.values() for partition in kept}
    free = [partition for partition in everything if partition not in kept_by_all]
    filling = _QuotaFilling(assignment, share, rest)
    if nearness.homes:
        free = filling.give_near(nearness.fewest_near_first(free), nearness)
    filling.give_in_turns(free)
    return assignment


class _QuotaFilling:
    """Members below their quota, which is `share`, and one more for `rest` of them."""

    def __init__(self, assignment: Assignment, share: int, rest: int) -> None:
        self._assignment = assignment
        self._share = share
        self._rest = rest
        self._hungry = self._having(range(share))
        self._next_for_more = self._having(range(share, share + 1)) if rest else []

    def _having(self, count: range) -> list[str]:
        having = (m for m, given in self._assignment.items() if len(given) in count)
        return sorted(having, key=utf16)

    def give_near(
        self, partitions: Iterable[TopicPartition], nearness: RackAwareness
    ) -> list[TopicPartition]:
        """Assign each partition to the next near member, and return those left without one."""
        left: list[TopicPartition] = []
        turn = 0
        for partition in partitions:
            if (place := nearness.next_near(self._hungry, partition, turn)) is not None:
                self._assignment[self._hungry[place]].append(partition)
                place += not self._is_sated(place)
                turn = place % len(self._hungry) if self._hungry else 0
            elif (place := nearness.next_near(self._next_for_more, partition)) is not None:
                self._assignment[self._next_for_more.pop(place)].append(partition)
                self._rest -= 1
                if not self._rest:
                    self._next_for_more.clear()
            else:
                left.append(partition)
        return left

    def _is_sated(self, place: int) -> bool:
        """Remove the member at `place` if it has reached `share`, and return whether it has."""
        if len(self._assignment[self._hungry[place]]) < self._share:
            return False
        member = self._hungry.pop(place)
        if self._rest:
            self._next_for_more.append(member)
        return True

    def give_in_turns(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign all these partitions to members in turn."""
        hungry, next_for_more = deque(self._hungry), deque(self._next_for_more)
        for partition in partitions:
            member = (hungry or next_for_more).popleft()
            given = self._assignment[member]
            given.append(partition)
            if len(given) < self._share:
                hungry.append(member)
            elif len(given) == self._share:
                next_for_more.append(member)
