"""The members of a classic group at its fake coordinator."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from asyncconsumer.testing.fake_kafka.codes import NONE
from asyncconsumer.testing.fake_kafka.tables import Reply


@dataclass(slots=True, eq=False)
class GroupMember:
    """A member of a classic group.

    `join` and `sync` are functions that send the responses to its pending JoinGroup and SyncGroup
    requests, or None if no such request is pending.
    """

    id: str
    instance: str | None
    session: float  # seconds
    rebalance: float
    protocols: Mapping[str, bytes]
    assignment: bytes = b""
    join: Reply | None = None
    sync: Reply | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether a JoinGroup or SyncGroup request of the member is pending."""
        return self.join is not None or self.sync is not None

    def description(self, protocol: str) -> dict[str, Any]:
        """Return the entry of this member in the JoinGroup response to the leader."""
        return {
            "member_id": self.id,
            "group_instance_id": self.instance,
            "metadata": self.protocols.get(protocol, b""),
        }

    def expect(self, timer: asyncio.TimerHandle) -> None:
        """Cancel the session timer, and store `timer` in its place."""
        self.rest()
        self.timer = timer

    def rest(self) -> None:
        """Cancel the session timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def join_again(self, received: "GroupMember", reply: Reply) -> None:
        """Store a JoinGroup request of this member, which is answered later.

        `received` has the protocols and the rebalance timeout of the request. `reply` sends the
        response.
        """
        self.protocols, self.rebalance, self.join = received.protocols, received.rebalance, reply

    def wait_for_share(self, reply: Reply) -> None:
        """Store a SyncGroup request, which is answered later. `reply` sends the response."""
        self.sync = reply

    def tell_joined(self, values: dict[str, Any]) -> None:
        """Send the response to the pending JoinGroup request, if there is one.

        `values` are the fields of the response.
        """
        reply, self.join = self.join, None
        if reply is not None:
            reply(values)

    def tell_share(self, values: dict[str, Any]) -> None:
        """Send the response to the pending SyncGroup request, if there is one.

        `values` are the fields of the response.
        """
        reply, self.sync = self.sync, None
        if reply is not None:
            reply(values)

    def get(self, assignment: bytes) -> None:
        """Store the assignment that the group leader has computed for this member."""
        self.assignment = assignment

    def refuse(self, code: int) -> None:
        """Answer the member's pending JoinGroup and SyncGroup requests with an error code."""
        self.tell_joined(join_answer(code, member_id=self.id))
        self.tell_share(sync_answer(code))

    def copy(self) -> "GroupMember":
        """Return a copy for storage, without the pending requests and the timer."""
        return replace(self, join=None, sync=None, timer=None)


class Stored(NamedTuple):
    """The state of a group after its last rebalance, which the next coordinator loads."""

    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: tuple[GroupMember, ...] = ()


@dataclass(slots=True)
class CoordinatorStorage:
    """The members and offsets of groups, as Kafka stores them in the topic `__consumer_offsets`.

    A new coordinator of a group loads them.
    """

    groups: dict[str, Stored] = field(default_factory=dict)
    loaded: dict[str, object] = field(default_factory=dict)
    """The `FakeGroup` that loaded each group last. Only this object may store the group."""
    offsets: dict[str, dict[tuple[str, int], dict[str, Any]]] = field(default_factory=dict)
    on_commit: Callable[[str, str, tuple[str, int], int], None] = lambda *_: None
    """A callback for each committed offset: group, member, partition and offset."""


NOT_DESCRIBED: Final[Mapping[str, Any]] = {
    "group_state": "",
    "protocol_type": "",
    "protocol": "",
    "members": [],
    "authorized_operations": -(2**31),
}
"""The fields of a group in a DescribeGroups response that has an error code."""


def join_answer(code: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as the fields declare them
    """Return the fields of a JoinGroup response with the error `code` and the fields `more`."""
    empty: dict[str, Any] = {
        "throttle_time_ms": 0,
        "error_code": code,
        "generation": -1,
        "protocol_type": None,
        "protocol": "",
        "leader": "",
        "skip_assignment": False,
        "member_id": "",
        "members": [],
    }
    return empty | more


def sync_answer(
    code: int = NONE, assignment: bytes = b"", protocol: str | None = None
) -> dict[str, Any]:
    """Return the fields of a SyncGroup response."""
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "protocol_type": None if protocol is None else "consumer",
        "protocol": protocol,
        "assignment": assignment,
    }
