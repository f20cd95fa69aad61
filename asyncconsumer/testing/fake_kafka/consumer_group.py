"""The state of a KIP-848 group at its coordinator: epochs, target and current assignment."""

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

Partitions: TypeAlias = frozenset[tuple[UUID, int]]
NOTHING: Partitions = frozenset()
AWAY = -2  # the epoch of a static member that left temporarily


class State(enum.Enum):
    """The reconciliation state of a member."""

    STABLE = "it has its target assignment, or gets it with the next heartbeat"
    UNREVOKED = "it must revoke partitions first"
    UNRELEASED = "other members must revoke partitions first"


@dataclass(eq=False)
class Member:
    """A member of a KIP-848 group."""

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    topics: frozenset[str] = frozenset()
    regex: str = ""
    subscribed: bool = False  # the group epoch was raised for the member's first subscription
    rebalance_timeout: float = 0.0
    state: State = State.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING

    @property
    def holds(self) -> Partitions:
        """The member's assigned partitions, and those whose revocation it has not confirmed yet.

        No other member may get any of them.
        """
        return self.assigned | self.revoking


@dataclass(eq=False)
class Group:
    """The members of a group and their target assignment."""

    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    seen: Mapping[str, Partitions] = field(default_factory=dict)  # topics at the last `divide`

    def holder(self, partition: tuple[UUID, int]) -> str | None:
        """Return the id of the member that has a partition and did not confirm its revocation.

        Return None if there is no such member.
        """
        return next(
            (member_id for member_id, member in self.members.items() if partition in member.holds),
            None,
        )

    def static(self, instance_id: str | None) -> Member | None:
        """Return the static member with this instance id, or None."""
        if instance_id is None:
            return None
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def subscribed(self, names: Iterable[str]) -> set[str]:
        """Return those of the topics `names` to which at least one member is subscribed."""
        return {
            name
            for name in names
            for member in self.members.values()
            if name in member.topics or (member.regex and re.fullmatch(member.regex, name))
        }

    def remove(self, member: Member) -> None:
        """Remove a member, and increment the group epoch, so that others get its partitions."""
        del self.members[member.member_id]
        self.target.pop(member.member_id, None)
        self.epoch += 1

    def replace(self, old: Member, member_id: str) -> Member:
        """Replace the static member `old` by a new one with the id `member_id`, and return it.

        The new member has the same instance id, subscription and assignment.
        """
        del self.members[old.member_id]
        new = Member(member_id, old.instance_id, 0, 0, old.topics, old.regex)
        new.assigned, new.subscribed = old.assigned, True
        self.members[member_id] = new
        self.target[member_id] = self.target.pop(old.member_id, NOTHING)
        return new

    def divide(self, topics: Mapping[str, Partitions], matches: Callable[[str, str], bool]) -> None:
        """Compute a new target assignment if members, subscriptions or topics have changed.

        `topics` has the partitions of each topic. `matches(regex, topic)` returns whether a
        subscribed regular expression matches a topic.
        """
        subscriptions = {
            member_id: frozenset(
                name
                for name in topics
                if name in member.topics or (member.regex and matches(member.regex, name))
            )
            for member_id, member in self.members.items()
        }
        needed = {name: topics[name] for name in sorted(frozenset().union(*subscriptions.values()))}
        if needed != self.seen:
            self.seen, self.epoch = needed, self.epoch + 1
        if self.target_epoch < self.epoch:
            self.target = uniform(needed, subscriptions, self.target)
            self.target_epoch = self.epoch

    def reconcile(self, member: Member, owned: Partitions | None) -> None:
        """Change the assignment of a member to its target, in the steps that KIP-848 allows.

        `owned` are the partitions that the member's heartbeat reports, or None if it reports none.
        First, the member must confirm revocations: `owned` must lack the revoked partitions. Then
        the member gets the target partitions that no other member has.
        """
        if member.state is State.UNREVOKED:
            if owned is None or owned & member.revoking:
                return
            self._advance(member, owned, member.epoch + 1)
        elif member.state is State.UNRELEASED or member.epoch != self.target_epoch:
            self._advance(member, owned, member.epoch)

    def _advance(self, member: Member, owned: Partitions | None, epoch: int) -> None:
        target = self.target.get(member.member_id, NOTHING)
        keep, revoke = member.assigned & target, member.assigned - target
        others = frozenset().union(
            *(other.holds for other in self.members.values() if other is not member)
        )
        if revoke and (owned is None or owned & revoke):
            member.state, member.assigned, member.revoking = State.UNREVOKED, keep, revoke
            self._step(member, epoch)
            return
        taken = target & others
        member.assigned, member.revoking = target - others, NOTHING
        member.state = State.UNRELEASED if taken else State.STABLE
        self._step(member, self.target_epoch)

    @staticmethod
    def _step(member: Member, epoch: int) -> None:
        if epoch != member.epoch:
            member.previous_epoch, member.epoch = member.epoch, epoch


def uniform(
    topics: Mapping[str, Partitions],
    subscriptions: Mapping[str, Iterable[str]],
    before: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """Return an even assignment that changes the assignment `before` as little as possible.

    `topics` has the partitions of each topic, and `subscriptions` the topics of each member id.
    """
    assignments: dict[str, set[tuple[UUID, int]]] = {
        member_id: set() for member_id in subscriptions
    }
    readers = {
        partition: sorted(member_id for member_id, names in subscriptions.items() if name in names)
        for name, partitions in topics.items()
        for partition in sorted(partitions)
    }
    for partition, may in readers.items():
        owners = [member_id for member_id in may if partition in before.get(member_id, NOTHING)]
        least = min(may, key=lambda member_id: len(assignments[member_id]))
        assignments[owners[0] if owners else least].add(partition)
    while True:  # move partitions from the most to the least loaded member until the loads are even
        moves = (
            (len(assignments[giver]) - len(assignments[taker]), giver, taker, partition)
            for giver, has in assignments.items()
            for partition in sorted(has)
            for taker in readers[partition]
        )
        best = max(moves, key=lambda move: move[0], default=None)
        if best is None or best[0] < 2:
            return {member_id: frozenset(has) for member_id, has in assignments.items()}
        _, giver, taker, partition = best
        assignments[giver].remove(partition)
        assignments[taker].add(partition)
