"""One group of KIP-848 as its coordinator keeps it: epochs, the target, who has what."""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

Partitions: TypeAlias = frozenset[tuple[UUID, int]]
NOTHING: Partitions = frozenset()
AWAY = -2  # as the epoch of a static member that left for a while


class State(enum.Enum):
    """How far a member is on the way to its target."""

    STABLE = "it has it, or is told it by the next heartbeat"
    UNREVOKED = "it has to let go of something first"
    UNRELEASED = "others have to"


@dataclass(eq=False)
class Member:
    """One member."""

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    topics: frozenset[str] = frozenset()
    regex: str = ""
    subscribed: bool = False  # it was counted as a change of the group
    rebalance_timeout: float = 0.0
    state: State = State.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING

    @property
    def holds(self) -> Partitions:
        """What nobody else may be given."""
        return self.assigned | self.revoking


@dataclass(eq=False)
class Group:
    """All members, and what each is to have."""

    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    seen: Mapping[str, Partitions] = field(default_factory=dict)  # topics, as of the last target

    def holder(self, one: tuple[UUID, int]) -> str | None:
        """Who has a partition now."""
        return next((who for who, member in self.members.items() if one in member.holds), None)

    def static(self, instance_id: str | None) -> Member | None:
        """The member of that name."""
        if instance_id is None:
            return None
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def remove(self, member: Member) -> None:
        """It is gone: what it had is free."""
        del self.members[member.member_id]
        self.target.pop(member.member_id, None)
        self.epoch += 1

    def replace(self, old: Member, member_id: str) -> Member:
        """A static member is back under another id, and has what it had."""
        del self.members[old.member_id]
        new = Member(member_id, old.instance_id, 0, 0, old.topics, old.regex)
        new.assigned, new.subscribed = old.assigned, True
        self.members[member_id] = new
        self.target[member_id] = self.target.pop(old.member_id, NOTHING)
        return new

    def divide(self, topics: Mapping[str, Partitions], matches: Callable[[str, str], bool]) -> None:
        """Work out the target anew if members, subscriptions or topics are others."""
        wanted = {
            who: frozenset(
                name
                for name in topics
                if name in member.topics or (member.regex and matches(member.regex, name))
            )
            for who, member in self.members.items()
        }
        needed = {name: topics[name] for name in sorted(frozenset().union(*wanted.values()))}
        if needed != self.seen:
            self.seen, self.epoch = needed, self.epoch + 1
        if self.target_epoch < self.epoch:
            self.target = uniform(needed, wanted, self.target)
            self.target_epoch = self.epoch

    def reconcile(self, member: Member, owned: Partitions | None) -> None:
        """Take a member on to its target, as far as it and others have let go."""
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
            *(one.holds for one in self.members.values() if one is not member)
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
    wanted: Mapping[str, Iterable[str]],
    before: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """As even as can be, and everybody keeps what it had as far as that allows."""
    shares: dict[str, set[tuple[UUID, int]]] = {who: set() for who in wanted}
    readers = {
        one: sorted(who for who, names in wanted.items() if name in names)
        for name, partitions in topics.items()
        for one in sorted(partitions)
    }
    for one, may in readers.items():
        had = [who for who in may if one in before.get(who, NOTHING)]
        least = min(may, key=lambda who: len(shares[who]))
        shares[had[0] if had else least].add(one)
    while True:  # from who has most to who has least, until that is no more even
        moves = (
            (len(shares[giver]) - len(shares[taker]), giver, taker, one)
            for giver, has in shares.items()
            for one in sorted(has)
            for taker in readers[one]
        )
        best = max(moves, key=lambda move: move[0], default=None)
        if best is None or best[0] < 2:
            return {who: frozenset(has) for who, has in shares.items()}
        _, giver, taker, one = best
        shares[giver].remove(one)
        shares[taker].add(one)
