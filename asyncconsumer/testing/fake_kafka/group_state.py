"""The state machine of a classic group at its fake coordinator."""

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from asyncconsumer.protocol.subscription_codec import ConsumerProtocolSubscription
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
    NOT_DESCRIBED,
    CoordinatorStorage,
    GroupMember,
    Stored,
    join_answer,
    sync_answer,
)
from asyncconsumer.testing.fake_kafka.tables import Reply

_SESSIONS: Final = range(6_000, 1_800_001)  # the allowed range, in milliseconds
_FIRST_WITH_IDS: Final = 4  # since this version of JoinGroup, new members get an id first


class Phase(enum.Enum):
    """The state of a classic group. Each value is a description of the state."""

    EMPTY = "has no members"
    PREPARING = "waits for all members to join"
    COMPLETING = "waits for the leader's assignments"
    STABLE = "has its assignments"
    UNLOADED = "is coordinated elsewhere"


_STATE_NAMES: Final = {
    Phase.EMPTY: "Empty",
    Phase.PREPARING: "PreparingRebalance",
    Phase.COMPLETING: "CompletingRebalance",
    Phase.STABLE: "Stable",
}


class FakeGroup:
    """A classic group at the broker that coordinates it, with the state loaded from `storage`."""

    def __init__(
        self, name: str, broker: FakeBroker, storage: CoordinatorStorage, randomness: Random
    ) -> None:
        stored = storage.groups.get(name, Stored())
        self.name = name
        self.generation, self.protocol, self.leader, _ = stored
        self.members = {member.id: member.copy() for member in stored.members}
        self.phase = Phase.STABLE if self.members else Phase.EMPTY
        self._broker = broker
        self._storage = storage
        storage.loaded[name] = self
        self._randomness = randomness
        self._pending: dict[str, asyncio.TimerHandle] = {}  # ids that have not joined
        self._rebalance: asyncio.TimerHandle | None = None
        for member in self.members.values():
            self._expect(member)

    def unload(self) -> None:
        """Answer pending requests with an error, and ignore all timers from then on.

        The caller does this when another broker becomes the coordinator of the group.
        """
        for member in self.members.values():
            member.rest()
            member.refuse(NOT_COORDINATOR)
        for timer in self._pending.values():
            timer.cancel()
        self._stop_waiting()
        self.phase = Phase.UNLOADED

    # --- joining ---------------------------------------------------------------------------------

    def join(self, fields: Mapping[str, Any], version: int, reply: Reply) -> None:
        """Handle a JoinGroup request with these fields and this version.

        Call `reply` with the response, now or later.
        """
        member_id, instance = fields["member_id"], fields.get("group_instance_id")
        protocols = {row["name"]: row["metadata"] for row in fields["protocols"]}
        received = GroupMember(
            member_id,
            instance,
            fields["session_timeout_ms"] / 1000,
            fields["rebalance_timeout_ms"] / 1000,
            protocols,
        )
        if fields["session_timeout_ms"] not in _SESSIONS:
            reply(join_answer(INVALID_SESSION_TIMEOUT, member_id=member_id))
        elif not self._common(protocols, but=member_id or self._holder(instance)):
            reply(join_answer(INCONSISTENT_GROUP_PROTOCOL, member_id=member_id))
        elif member_id == "" and self._holder(instance):
            self._replace(self.members[self._holder(instance)], received, version, reply)
        elif member_id == "":
            received = replace(received, id=self._new_id(instance))
            if instance is None and version >= _FIRST_WITH_IDS:
                self._pending[received.id] = self._after(
                    received.session, self._not_joined, received.id
                )
                reply(join_answer(MEMBER_ID_REQUIRED, member_id=received.id))
            else:
                self._add(received, reply)
        elif member_id in self._pending:
            self._pending.pop(member_id).cancel()
            self._add(received, reply)
        elif code := self._trouble(member_id, instance):
            reply(join_answer(code, member_id=member_id))
        else:
            self._join_again(self.members[member_id], received, reply)

    def _add(self, member: GroupMember, reply: Reply) -> None:
        member.join_again(member, reply)
        self.members[member.id] = member
        self._expect(member)
        self._prepare()

    def _join_again(self, member: GroupMember, received: GroupMember, reply: Reply) -> None:
        changed = member.protocols != received.protocols
        settled = self.phase is Phase.COMPLETING or (
            self.phase is Phase.STABLE and member.id != self.leader
        )
        if settled and not changed:
            reply(self._joined(member))
            return
        member.refuse(REBALANCE_IN_PROGRESS)
        member.join_again(received, reply)
        self._prepare()

    def _replace(self, old: GroupMember, new: GroupMember, version: int, reply: Reply) -> None:
        """Replace the static member `old` by `new`, which gets a new member id. Fence `old`.

        The new member keeps the assignment of `old`. If `old` was the group leader, the new member
        becomes the leader. If the group is stable, there is no rebalance.
        """
        old.refuse(FENCED_INSTANCE_ID)
        old.rest()
        new = replace(new, id=self._new_id(new.instance), assignment=old.assignment)
        self.members = {
            new.id if member_id == old.id else member_id: m for member_id, m in self.members.items()
        }
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
        """Start a rebalance, unless one is running. Wait until all members have sent JoinGroup."""
        for member in self.members.values():
            member.tell_share(sync_answer(REBALANCE_IN_PROGRESS))
        if self.phase is not Phase.PREPARING:
            self.phase = Phase.PREPARING
            self._stop_waiting()
            longest = max((member.rebalance for member in self.members.values()), default=0.0)
            self._rebalance = self._after(longest, self._begin_generation)
        self._begin_if_all_are_there()

    def _begin_if_all_are_there(self) -> None:
        joined = all(member.join is not None for member in self.members.values())
        if self.phase is Phase.PREPARING and not self._pending and joined:
            self._begin_generation()

    def _begin_generation(self) -> None:
        """Start a generation with the members that have sent JoinGroup, and answer them.

        Other members are removed, except static ones.
        """
        if self.phase is not Phase.PREPARING:
            return
        self._stop_waiting()
        for member in [member for member in self.members.values() if member.join is None]:
            if member.instance is None:
                member.rest()
                del self.members[member.id]
        self.generation += 1
        if not self.members:
            self.phase, self.leader, self.protocol = Phase.EMPTY, "", ""
            self._write_down()
            return
        self.phase, self.protocol = Phase.COMPLETING, self._chosen()
        joined = [member.id for member in self.members.values() if member.join is not None]
        if self.leader not in joined:
            self.leader = (joined or list(self.members))[0]
        longest = max(member.rebalance for member in self.members.values())
        self._rebalance = self._after(longest, self._not_synced)
        for member in self.members.values():
            self._expect(member)
            member.tell_joined(self._joined(member))

    def _joined(self, member: GroupMember) -> dict[str, Any]:
        everyone = [member.description(self.protocol) for member in self.members.values()]
        return join_answer(
            NONE,
            generation=self.generation,
            protocol_type="consumer",
            protocol=self.protocol,
            leader=self.leader,
            member_id=member.id,
            members=everyone if member.id == self.leader else [],
        )

    # --- other requests --------------------------------------------------------------------------

    def sync(self, fields: Mapping[str, Any], reply: Reply) -> None:
        """Handle a SyncGroup request with these fields.

        Call `reply` with the response, now or later.
        """
        member_id, generation = fields["member_id"], fields["generation"]
        if code := self._trouble(member_id, fields.get("group_instance_id"), generation):
            reply(sync_answer(code))
        elif self.phase is Phase.PREPARING:
            reply(sync_answer(REBALANCE_IN_PROGRESS))
        elif self.phase is Phase.STABLE:
            member = self.members[member_id]
            self._expect(member)
            reply(sync_answer(NONE, member.assignment, self.protocol))
        else:
            self.members[member_id].wait_for_share(reply)
            if member_id == self.leader:
                self._assign({row["member_id"]: row["assignment"] for row in fields["assignments"]})

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        self.phase = Phase.STABLE
        self._stop_waiting()
        for member in self.members.values():
            member.get(assignments.get(member.id, b""))
            self._expect(member)
        self._write_down()
        for member in self.members.values():
            member.tell_share(sync_answer(NONE, member.assignment, self.protocol))

    def heartbeat(self, fields: Mapping[str, Any]) -> int:
        """Handle a Heartbeat request with these fields, and return the error code."""
        member_id, generation = fields["member_id"], fields["generation"]
        if code := self._trouble(member_id, fields.get("group_instance_id"), generation):
            return code
        self._expect(self.members[member_id])
        return REBALANCE_IN_PROGRESS if self.phase is Phase.PREPARING else NONE

    def leave(self, member_id: str, instance: str | None) -> int:
        """Remove a member that sent LeaveGroup, and return the error code.

        A static member may be given by its instance id only, with "" as the member id.
        """
        if member_id in self._pending:
            self._not_joined(member_id)
            return NONE
        member_id = member_id or self._holder(instance)
        if code := self._trouble(member_id, instance):
            return code
        self._remove(self.members[member_id])
        return NONE

    def describe(self) -> dict[str, Any]:
        """Return the fields of this group in a DescribeGroups response."""
        stable = self.phase is Phase.STABLE
        members = [
            {
                "member_id": member.id,
                "group_instance_id": member.instance,
                "client_id": "",
                "client_host": "",
                "metadata": member.protocols[self.protocol] if stable else b"",
                "assignment": member.assignment,
            }
            for member in self.members.values()
        ]
        return {
            **NOT_DESCRIBED,
            "group_state": _STATE_NAMES[self.phase],
            "protocol_type": "consumer" if self.generation else "",
            "protocol": self.protocol if stable else "",
            "members": members,
        }

    def may_commit(self, fields: Mapping[str, Any]) -> int:
        """Return the error code for an OffsetCommit with these fields, or 0 if it is accepted."""
        member_id, generation = fields["member_id"], fields["generation"]
        if self.phase is Phase.EMPTY and generation < 0:
            return NONE
        if code := self._trouble(member_id, fields.get("group_instance_id"), generation):
            return code
        if self.phase is Phase.COMPLETING:
            return REBALANCE_IN_PROGRESS
        self._expect(self.members[member_id])
        return NONE

    # --- members ---------------------------------------------------------------------------------

    def subscribed(self) -> set[str]:
        """Return the topics to which the members are subscribed."""
        return {
            topic
            for member in self.members.values()
            for metadata in member.protocols.values()
            for topic in ConsumerProtocolSubscription.decode(metadata).topics
        }

    def expire(self) -> int:
        """Remove all members, as if their sessions had timed out. Return their number."""
        members = list(self.members.values())
        for member in members:
            if member.id in self.members:
                self._remove(member)
        return len(members)

    def _trouble(self, member_id: str, instance: str | None, generation: int | None = None) -> int:
        """Return the error code for a request of an unknown or fenced member, otherwise 0.

        If `generation` is given, a generation that is not the current one is an error, too.
        """
        if instance is not None and (holder := self._holder(instance)) and holder != member_id:
            return FENCED_INSTANCE_ID
        if member_id not in self.members:
            return UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return ILLEGAL_GENERATION
        return NONE

    def _holder(self, instance: str | None) -> str:
        """Return the id of the static member with this instance id, or "" if there is none."""
        if instance is None:
            return ""
        return next(
            (member.id for member in self.members.values() if member.instance == instance), ""
        )

    def _common(self, protocols: Mapping[str, bytes], *, but: str) -> set[str]:
        others = [set(member.protocols) for member in self.members.values() if member.id != but]
        return set(protocols).intersection(*others)

    def _chosen(self) -> str:
        """Return the protocol for the next generation, by a vote of the members.

        Each member votes for its first protocol that all members support.
        """
        common = set.intersection(*(set(member.protocols) for member in self.members.values()))
        votes = [
            next(name for name in member.protocols if name in common)
            for member in self.members.values()
        ]
        return max(dict.fromkeys(votes), key=votes.count)

    def _expect(self, member: GroupMember) -> None:
        """Restart the session timer of a member."""
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

    def _not_joined(self, member_id: str) -> None:
        """Remove the id of a new member that did not join with it after MEMBER_ID_REQUIRED."""
        if (timer := self._pending.pop(member_id, None)) is not None:
            timer.cancel()
            self._begin_if_all_are_there()

    def _not_synced(self) -> None:
        """Remove members that did not send SyncGroup in time."""
        if self.phase is Phase.COMPLETING:
            for member in [member for member in self.members.values() if member.sync is None]:
                if member.id in self.members:
                    self._remove(member)

    def _write_down(self) -> None:
        members = tuple(member.copy() for member in self.members.values())
        self._storage.groups[self.name] = Stored(
            self.generation, self.protocol, self.leader, members
        )

    def _stop_waiting(self) -> None:
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None

    def _after(
        self, seconds: float, step: Callable[..., None], *args: object
    ) -> asyncio.TimerHandle:
        """Call `step` after `seconds`, unless `unload` is called before. Return the timer.

        If the broker is frozen then, `step` is called after the broker is thawed.
        """

        def act() -> None:
            if self._storage.loaded[self.name] is not self:
                self.unload()  # real brokers cannot append in the epoch of an earlier leader
            elif self.phase is not Phase.UNLOADED:
                step(*args)

        loop = asyncio.get_running_loop()
        return loop.call_later(seconds, self._broker.when_running, act)

    def _new_id(self, instance: str | None) -> str:
        return f"{instance or 'member'}-{self._randomness.getrandbits(64):016x}"
