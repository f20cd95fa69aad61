"""The sticky assignors: balanced assignments in which few partitions change their owner."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence

from asyncconsumer.errors import MalformedConsumerProtocol
from asyncconsumer.group.assignors.claims import OwnershipClaims, PreviousAssignment, resolve
from asyncconsumer.group.assignors.protocol import (
    Assignor,
    MemberSubscription,
    PartitionsByMember,
    Racks,
    existing,
    readers,
)
from asyncconsumer.group.assignors.racks import NO_RACKS, RackAwareness
from asyncconsumer.group.assignors.sticky_general import assign_general
from asyncconsumer.group.assignors.sticky_uniform import assign_uniform
from asyncconsumer.protocol.subscription_codec import (
    NO_GENERATION,
    CooperativeStickyUserData,
    StickyUserData,
)
from asyncconsumer.types import TopicPartition


class _Sticky(Assignor):
    """The base class of the eager and the cooperative sticky assignor."""

    @abstractmethod
    def _previous_assignment(self, subscription: MemberSubscription) -> PreviousAssignment:
        """Return the previous assignment that a member's subscription contains."""

    def _compute(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None,
    ) -> tuple[PartitionsByMember, set[TopicPartition]]:
        """Return the assignment, and the assigned partitions that another member may still own.

        The eager assignor ignores the second value.
        """
        if not subscriptions:
            return {}, set()
        counts = existing(partitions, subscriptions)
        members = subscriptions.items()
        previous = {m: self._previous_assignment(subscription) for m, subscription in members}
        claims = resolve(counts, subscriptions, previous)
        everything = (TopicPartition(topic, n) for topic in counts for n in range(counts[topic]))
        awareness = RackAwareness.create(everything, subscriptions, subscriptions, racks)
        if not awareness.matters:
            awareness = NO_RACKS
        if len({frozenset(member.topics) for member in subscriptions.values()}) == 1:
            assignment = assign_uniform(counts, claims, awareness)
            return assignment, _owned_by_others(assignment, claims)
        reading = readers(subscriptions)
        reading = {topic: reading[topic] for topic in counts}
        assignment = assign_general(counts, reading, claims, awareness)
        owned = {m: subscription.owned_partitions for m, subscription in members}
        return assignment, _not_yet_revoked(assignment, owned)


class StickyAssignor(_Sticky):
    """The eager sticky assignor.

    It stores the last assignment of this member, because an eager member owns nothing when it
    joins.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._last_assignment: StickyUserData | None = None

    def assigned(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Store the assigned partitions, so that the next JoinGroup can contain them."""
        self._last_assignment = StickyUserData(tuple(partitions), generation)

    def user_data(
        self, topics: Collection[str], owned: Collection[TopicPartition], generation: int
    ) -> bytes | None:
        """Return the last assignment of this member, encoded for the group leader."""
        return self._last_assignment.encode() if self._last_assignment is not None else None

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> PartitionsByMember:
        """Return an assignment as balanced as the subscriptions allow.

        Few partitions change their owner.
        """
        return self._compute(partitions, subscriptions, racks)[0]

    def _previous_assignment(self, subscription: MemberSubscription) -> PreviousAssignment:
        if not subscription.user_data:
            return PreviousAssignment((), NO_GENERATION)
        try:
            partitions, generation = StickyUserData.decode(subscription.user_data)
        except MalformedConsumerProtocol:
            return PreviousAssignment((), NO_GENERATION)
        return PreviousAssignment(partitions, NO_GENERATION if generation is None else generation)


class CooperativeStickyAssignor(_Sticky):
    """The sticky assignor of the cooperative protocol. It also works for eager members."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(
        self, topics: Collection[str], owned: Collection[TopicPartition], generation: int
    ) -> bytes | None:
        """Return the encoded generation of this member's last assignment.

        Subscriptions before version 2 have no field for the generation, so the leader reads it
        here.
        """
        return CooperativeStickyUserData(generation).encode()

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, MemberSubscription],
        racks: Racks | None = None,
    ) -> PartitionsByMember:
        """Return an assignment as balanced as the subscriptions allow.

        Few partitions change their owner. A partition that its current owner must revoke first is
        left out.
        """
        assignment, still_owned = self._compute(partitions, subscriptions, racks)
        return {
            member: [partition for partition in tps if partition not in still_owned]
            for member, tps in assignment.items()
        }

    def _previous_assignment(self, subscription: MemberSubscription) -> PreviousAssignment:
        owned = subscription.owned_partitions
        if subscription.generation_id >= 0 or subscription.user_data is None:
            return PreviousAssignment(owned, subscription.generation_id)
        try:
            user_data = CooperativeStickyUserData.decode(subscription.user_data)
        except MalformedConsumerProtocol:
            return PreviousAssignment(owned, NO_GENERATION)
        return PreviousAssignment(owned, user_data.generation)


def _owned_by_others(
    assignment: PartitionsByMember, claims: OwnershipClaims
) -> set[TopicPartition]:
    """Return the assigned partitions that another member owns, and those that two members claim."""
    owners = claims.owners()
    return claims.contested | {
        partition
        for member, tps in assignment.items()
        for partition in tps
        if owners.get(partition, member) != member
    }


def _not_yet_revoked(
    assignment: PartitionsByMember, owned: Mapping[str, Sequence[TopicPartition]]
) -> set[TopicPartition]:
    """Return the partitions that the assignment moves from one member in `owned` to another."""
    new = {p for member, tps in assignment.items() for p in set(tps).difference(owned[member])}
    revoked = {
        p for member, before in owned.items() for p in set(before).difference(assignment[member])
    }
    return new & revoked
