"""Members of a group as its fake coordinator keeps them."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from asyncconsumer.testing.fake_kafka.codes import NONE
from asyncconsumer.testing.fake_kafka.tables import Reply


@dataclass(slots=True, eq=False)
class GroupMember:
    """One member. `join` and `sync` are its requests that wait for an answer."""

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
        """Whether it waits for us, and not we for it."""
        return self.join is not None or self.sync is not None

    def told(self, protocol: str) -> dict[str, Any]:
        """How the leader is told of it."""
        return {
            "member_id": self.id,
            "group_instance_id": self.instance,
            "metadata": self.protocols.get(protocol, b""),
        }

    def expect(self, timer: asyncio.TimerHandle) -> None:
        """Its session ends with this timer, and no longer with the one before."""
        self.rest()
        self.timer = timer

    def rest(self) -> None:
        """Forget its session."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def join_again(self, asked: "GroupMember", reply: Reply) -> None:
        """It wants to be in the next generation, perhaps with another subscription."""
        self.protocols, self.rebalance, self.join = asked.protocols, asked.rebalance, reply

    def wait_for_share(self, reply: Reply) -> None:
        """It wants to know what it gets."""
        self.sync = reply

    def tell_joined(self, values: dict[str, Any]) -> None:
        """Answer its JoinGroup, if it waits for that."""
        reply, self.join = self.join, None
        if reply is not None:
            reply(values)

    def tell_share(self, values: dict[str, Any]) -> None:
        """Answer its SyncGroup, if it waits for that."""
        reply, self.sync = self.sync, None
        if reply is not None:
            reply(values)

    def get(self, assignment: bytes) -> None:
        """Have a share from now on."""
        self.assignment = assignment

    def refuse(self, code: int) -> None:
        """Answer whatever it waits for with an error."""
        self.tell_joined(join_answer(code, member_id=self.id))
        self.tell_share(sync_answer(code))

    def copy(self) -> "GroupMember":
        """As it is written down: without what only the coordinator knows that it talks to."""
        return replace(self, join=None, sync=None, timer=None)


class Stored(NamedTuple):
    """A group as it was last written down: what the next coordinator reads."""

    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: tuple[GroupMember, ...] = ()


@dataclass(slots=True)
class Shelf:
    """What outlives coordinators: the groups written down, and the offsets committed."""

    groups: dict[str, Stored] = field(default_factory=dict)
    offsets: dict[str, dict[tuple[str, int], dict[str, Any]]] = field(default_factory=dict)
    on_commit: Callable[[str, str, tuple[str, int], int], None] = lambda *_: None
    """Told of each offset that is kept: of which group, by which member, and where."""


def join_answer(code: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as fields want them
    """An answer to JoinGroup."""
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
    """An answer to SyncGroup."""
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "protocol_type": None if protocol is None else "consumer",
        "protocol": protocol,
        "assignment": assignment,
    }
