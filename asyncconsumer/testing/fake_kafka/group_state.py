"""One classic group at its fake coordinator: the rules of Kafka's own, on the loop's clock."""

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from asyncconsumer.testing.fake_kafka.broker import FakeBroker
from asyncconsumer.testing.fake_kafka.codes import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from asyncconsumer.testing.fake_kafka.group_members import (
    GroupMember,
    Shelf,
    Stored,
    join_answer,
    sync_answer,
)
from asyncconsumer.testing.fake_kafka.tables import Reply

_SESSIONS: Final = range(6_000, 1_800_001)  # milliseconds that brokers allow
_FIRST_WITH_IDS: Final = 4  # version of JoinGroup in which new members get their ids first


class Phase(enum.Enum):
    """What a group is about."""

    EMPTY = "has no members"
    PREPARING = "waits for all members to join"
    COMPLETING = "waits for the leader's assignments"
    STABLE = "has its assignments"
    UNLOADED = "is coordinated elsewhere"


class FakeGroup:
    """A group in the memory of one broker, read from the shelf. `unload` ends it there."""

    def __init__(self, name: str, broker: FakeBroker, shelf: Shelf, randomness: Random) -> None:
        stored = shelf.groups.get(name, Stored())
        self.name = name
        self.generation, self.protocol, self.leader, _ = stored
        self.members = {one.id: one.copy() for one in stored.members}
        self.phase = Phase.STABLE if self.members else Phase.EMPTY
        self._broker = broker
        self._shelf = shelf
        self._randomness = randomness
        self._pending: dict[str, asyncio.TimerHandle] = {}  # ids that were given, by when to join
        self._rebalance: asyncio.TimerHandle | None = None
        for member in self.members.values():
            self._expect(member)

    def unload(self) -> None:
        """Another broker coordinates it: who waits is told so."""
        for member in self.members.values():
            member.rest()
            member.refuse(NOT_COORDINATOR)
        for timer in self._pending.values():
            timer.cancel()
        self._stop_waiting()
        self.phase = Phase.UNLOADED

    # --- joining ---------------------------------------------------------------------------------

    def join(self, wanted: Mapping[str, Any], version: int, reply: Reply) -> None:
        """JoinGroup."""
        who, instance = wanted["member_id"], wanted.get("group_instance_id")
        protocols = {row["name"]: row["metadata"] for row in wanted["protocols"]}
        asked = GroupMember(
            who,
            instance,
            wanted["session_timeout_ms"] / 1000,
            wanted["rebalance_timeout_ms"] / 1000,
            protocols,
        )
        if wanted["session_timeout_ms"] not in _SESSIONS:
            reply(join_answer(INVALID_SESSION_TIMEOUT, member_id=who))
        elif not self._common(protocols, but=who or self._holder(instance)):
            reply(join_answer(INCONSISTENT_GROUP_PROTOCOL, member_id=who))
        elif who == "" and self._holder(instance):
            self._replace(self.members[self._holder(instance)], asked, version, reply)
        elif who == "":
            asked = replace(asked, id=self._new_id(instance))
            if instance is None and version >= _FIRST_WITH_IDS:
                self._pending[asked.id] = self._after(asked.session, self._not_joined, asked.id)
                reply(join_answer(MEMBER_ID_REQUIRED, member_id=asked.id))
            else:
                self._add(asked, reply)
        elif who in self._pending:
            self._pending.pop(who).cancel()
            self._add(asked, reply)
        elif code := self._trouble(who, instance):
            reply(join_answer(code, member_id=who))
        else:
            self._join_again(self.members[who], asked, reply)

    def _add(self, member: GroupMember, reply: Reply) -> None:
        member.join_again(member, reply)
        self.members[member.id] = member
        self._expect(member)
        self._prepare()

    def _join_again(self, member: GroupMember, asked: GroupMember, reply: Reply) -> None:
        changed = member.protocols != asked.protocols
        settled = self.phase is Phase.COMPLETING or (
            self.phase is Phase.STABLE and member.id != self.leader
        )
        if settled and not changed:
            reply(self._joined(member))
            return
        member.refuse(REBALANCE_IN_PROGRESS)
        member.join_again(asked, reply)
        self._prepare()

    def _replace(self, old: GroupMember, new: GroupMember, version: int, reply: Reply) -> None:
        """A static member is back with nothing but its name: it has its place, with a new id."""
        old.refuse(FENCED_INSTANCE_ID)
        old.rest()
        new = replace(new, id=self._new_id(new.instance), assignment=old.assignment)
        self.members = {new.id if who == old.id else who: m for who, m in self.members.items()}
        self.members[new.id] = new
        led = self.leader == old.id
        self.leader = new.id if led else self.leader
        self._expect(new)
        if self.phase is Phase.STABLE and self._chosen() == self.protocol:
            self._write_down()
            answer = self._joined(new)
            if led and version >= 9:
                answer["skip_assignment"] = True
            elif led:
                answer |= {"leader": old.id, "members": []}
            reply(answer)
        else:
            new.join_again(new, reply)
            self._prepare()

    def _prepare(self) -> None:
        """There is to be another generation, as soon as all have joined."""
        for member in self.members.values():
            member.tell_share(sync_answer(REBALANCE_IN_PROGRESS))
        if self.phase is not Phase.PREPARING:
            self.phase = Phase.PREPARING
            self._stop_waiting()
            longest = max((one.rebalance for one in self.members.values()), default=0.0)
            self._rebalance = self._after(longest, self._begin_generation)
        self._begin_if_all_are_there()

    def _begin_if_all_are_there(self) -> None:
        there = all(member.join is not None for member in self.members.values())
        if self.phase is Phase.PREPARING and not self._pending and there:
            self._begin_generation()

    def _begin_generation(self) -> None:
        """With those who are there; static members keep their places."""
        if self.phase is not Phase.PREPARING:
            return
        self._stop_waiting()
        for member in [one for one in self.members.values() if one.join is None]:
            if member.instance is None:
                member.rest()
                del self.members[member.id]
        self.generation += 1
        if not self.members:
            self.phase, self.leader, self.protocol = Phase.EMPTY, "", ""
            self._write_down()
            return
        self.phase, self.protocol = Phase.COMPLETING, self._chosen()
        there = [one.id for one in self.members.values() if one.join is not None]
        if self.leader not in there:
            self.leader = (there or list(self.members))[0]
        longest = max(one.rebalance for one in self.members.values())
        self._rebalance = self._after(longest, self._not_synced)
        for member in self.members.values():
            self._expect(member)
            member.tell_joined(self._joined(member))

    def _joined(self, member: GroupMember) -> dict[str, Any]:
        everyone = [one.told(self.protocol) for one in self.members.values()]
        return join_answer(
            NONE,
            generation=self.generation,
            protocol_type="consumer",
            protocol=self.protocol,
            leader=self.leader,
            member_id=member.id,
            members=everyone if member.id == self.leader else [],
        )

    # --- the others ------------------------------------------------------------------------------

    def sync(self, wanted: Mapping[str, Any], reply: Reply) -> None:
        """SyncGroup."""
        who, generation = wanted["member_id"], wanted["generation"]
        if code := self._trouble(who, wanted.get("group_instance_id"), generation):
            reply(sync_answer(code))
        elif self.phase is Phase.PREPARING:
            reply(sync_answer(REBALANCE_IN_PROGRESS))
        elif self.phase is Phase.STABLE:
            member = self.members[who]
            self._expect(member)
            reply(sync_answer(NONE, member.assignment, self.protocol))
        else:
            self.members[who].wait_for_share(reply)
            if who == self.leader:
                self._assign({row["member_id"]: row["assignment"] for row in wanted["assignments"]})

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        self.phase = Phase.STABLE
        self._stop_waiting()
        for member in self.members.values():
            member.get(assignments.get(member.id, b""))
            self._expect(member)
        self._write_down()
        for member in self.members.values():
            member.tell_share(sync_answer(NONE, member.assignment, self.protocol))

    def heartbeat(self, wanted: Mapping[str, Any]) -> int:
        """Heartbeat: the code of the answer."""
        who, generation = wanted["member_id"], wanted["generation"]
        if code := self._trouble(who, wanted.get("group_instance_id"), generation):
            return code
        self._expect(self.members[who])
        return REBALANCE_IN_PROGRESS if self.phase is Phase.PREPARING else NONE

    def leave(self, who: str, instance: str | None) -> int:
        """LeaveGroup of one member: the code of the answer."""
        if who in self._pending:
            self._not_joined(who)
            return NONE
        who = who or self._holder(instance)
        if code := self._trouble(who, instance):
            return code
        self._remove(self.members[who])
        return NONE

    def may_commit(self, wanted: Mapping[str, Any]) -> int:
        """OffsetCommit: the code of the answer."""
        who, generation = wanted["member_id"], wanted["generation"]
        if self.phase is Phase.EMPTY and generation < 0:
            return NONE
        if code := self._trouble(who, wanted.get("group_instance_id"), generation):
            return code
        if self.phase is Phase.COMPLETING:
            return REBALANCE_IN_PROGRESS
        self._expect(self.members[who])
        return NONE

    # --- who is there ----------------------------------------------------------------------------

    def _trouble(self, who: str, instance: str | None, generation: int | None = None) -> int:
        """Why a member is not listened to, or 0."""
        if instance is not None and (holder := self._holder(instance)) and holder != who:
            return FENCED_INSTANCE_ID
        if who not in self.members:
            return UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return ILLEGAL_GENERATION
        return NONE

    def _holder(self, instance: str | None) -> str:
        """The id of the static member of that name, or nothing."""
        if instance is None:
            return ""
        return next((one.id for one in self.members.values() if one.instance == instance), "")

    def _common(self, protocols: Mapping[str, bytes], *, but: str) -> set[str]:
        others = [set(one.protocols) for one in self.members.values() if one.id != but]
        return set(protocols).intersection(*others)

    def _chosen(self) -> str:
        """The protocol that most members like best among those that all have."""
        common = set.intersection(*(set(one.protocols) for one in self.members.values()))
        votes = [
            next(name for name in one.protocols if name in common) for one in self.members.values()
        ]
        return max(dict.fromkeys(votes), key=votes.count)

    def _expect(self, member: GroupMember) -> None:
        """A sign of life: the session begins anew."""
        member.expect(self._after(member.session, self._silent, member))

    def _silent(self, member: GroupMember) -> None:
        if self.members.get(member.id) is not member:
            return
        if member.waits:
            self._expect(member)
        else:
            self._remove(member)

    def _remove(self, member: GroupMember) -> None:
        member.refuse(UNKNOWN_MEMBER_ID)
        member.rest()
        del self.members[member.id]
        if self.leader == member.id:
            self.leader = ""
        if self.phase is Phase.PREPARING:
            self._begin_if_all_are_there()
        else:
            self._prepare()

    def _not_joined(self, who: str) -> None:
        """It was given an id, and did not come back with it."""
        if (timer := self._pending.pop(who, None)) is not None:
            timer.cancel()
            self._begin_if_all_are_there()

    def _not_synced(self) -> None:
        """Who is in the generation and does not ask for its share is thrown out."""
        if self.phase is Phase.COMPLETING:
            for member in [one for one in self.members.values() if one.sync is None]:
                if member.id in self.members:
                    self._remove(member)

    def _write_down(self) -> None:
        members = tuple(one.copy() for one in self.members.values())
        self._shelf.groups[self.name] = Stored(self.generation, self.protocol, self.leader, members)

    def _stop_waiting(self) -> None:
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None

    def _after(
        self, seconds: float, step: Callable[..., None], *args: object
    ) -> asyncio.TimerHandle:
        """Do something later, or as soon as the broker runs again; not if we are gone by then."""

        def act() -> None:
            if self.phase is not Phase.UNLOADED:
                step(*args)

        loop = asyncio.get_running_loop()
        return loop.call_later(seconds, self._broker.when_running, act)

    def _new_id(self, instance: str | None) -> str:
        return f"{instance or 'member'}-{self._randomness.getrandbits(64):016x}"
