"""A fake cluster that also coordinates classic groups and keeps their offsets.

```python
async with GroupCluster(Random(1)) as cluster:
    cluster.move_coordinator("billing")
```
"""

import asyncio
import enum
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from aiokafka.protocol.types import Int8, Int16, Int32

from asyncconsumer.protocol.classic_group import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
)
from asyncconsumer.protocol.offset_commit import OFFSET_COMMIT, OFFSET_FETCH
from asyncconsumer.protocol.schema import Api, Field, Text
from asyncconsumer.testing.fake_kafka.broker import Handler, Request, State
from asyncconsumer.testing.fake_kafka.codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from asyncconsumer.testing.fake_kafka.fake import HANDLERS, FakeCluster
from asyncconsumer.testing.fake_kafka.group_members import Shelf, join_answer, sync_answer
from asyncconsumer.testing.fake_kafka.group_state import FakeGroup
from asyncconsumer.testing.fake_kafka.tables import Reply, handler, later

FIND_COORDINATOR: Final = Api(
    name="FindCoordinator",
    key=10,
    versions=range(2),
    flexible_since=3,
    request=(Field("key", Text), Field("key_type", Int8, 1)),
    response=(
        Field("throttle_time_ms", Int32, 1),
        Field("error_code", Int16),
        Field("error_message", Text, 1),
        Field("node_id", Int32),
        Field("host", Text),
        Field("port", Int32),
    ),
)


class Fate(enum.Enum):
    """What becomes of a request to a coordinator, and of the connection that it came over."""

    LOST_BEFORE = "the connection breaks before it is looked at"
    LOST_AFTER = "the connection breaks where the answer should have been sent"


class GroupCluster(FakeCluster):
    """A FakeCluster with coordinators. Each group has one; what they know dies with their broker.

    `shelf` has what outlives them: groups as they were last written down, which is when all members
    had their shares, and offsets.
    """

    def __init__(
        self,
        randomness: Random,
        *,
        handlers: Mapping[int, Handler] = HANDLERS,
        **options: Any,  # noqa: ANN401 - those of FakeCluster, which checks them
    ) -> None:
        super().__init__(randomness, handlers={**handlers, **self._handlers()}, **options)
        self.shelf = Shelf()
        self.groups: dict[str, FakeGroup] = {}
        self._homes: dict[str, int] = {}  # the node that coordinates each group
        self._fates: list[tuple[int, Fate]] = []

    def close(self) -> None:
        """End everything."""
        for group in self.groups.values():
            group.unload()
        super().close()

    # --- what a schedule does --------------------------------------------------------------------

    def coordinator(self, group: str) -> int:
        """The node that coordinates a group; -1 while none does."""
        if group not in self._homes:
            self._settle(group, self.randomness.choice(sorted(self.view.places)))
        return self._homes[group]

    def move_coordinator(
        self, group: str, node_id: int | None = None, *, loading: float = 0.0
    ) -> int:
        """Have another broker coordinate a group, as soon as it has read it; returns which."""
        others = [node for node in self.view.places if node != self.coordinator(group)]
        if node_id is None:
            node_id = self.randomness.choice(sorted(others) or [self.coordinator(group)])
        if (left := self.groups.pop(group, None)) is not None and self._homes[group] >= 0:
            self.brokers[self._homes[group]].when_running(left.unload)
        self._settle(group, node_id, loading=loading)
        return node_id

    def kill(self, node_id: int) -> None:
        """End a broker; other brokers coordinate its groups once that is noticed."""
        super().kill(node_id)
        for name in [name for name, home in self._homes.items() if home == node_id]:
            if (group := self.groups.pop(name, None)) is not None:
                group.unload()
            self._homes[name] = -1
            asyncio.get_running_loop().call_later(self.failover, self._find_home, name, node_id)

    def lose_next(self, api: int, fate: Fate) -> None:
        """Break the connection of the next request of an API to a coordinator."""
        self._fates.append((api, fate))

    def forget_fates(self) -> None:
        """Let requests be answered again."""
        self._fates.clear()

    def _find_home(self, group: str, before: int) -> None:
        if self._homes[group] < 0:
            back = self.brokers[before].state is not State.DOWN
            alive = [before] if back else sorted(self.view.places)
            if alive:
                self._settle(group, self.randomness.choice(alive))
            else:
                asyncio.get_running_loop().call_later(0.1, self._find_home, group, before)

    def _settle(self, group: str, node_id: int, *, loading: float = 0.0) -> None:
        self._homes[group] = node_id
        if loading:
            asyncio.get_running_loop().call_later(loading, self._load, group, node_id)
        else:
            self._load(group, node_id)

    def _load(self, group: str, node_id: int) -> None:
        if self._homes[group] == node_id and group not in self.groups:
            broker = self.brokers[node_id]
            self.groups[group] = FakeGroup(group, broker, self.shelf, self.randomness)

    # --- requests --------------------------------------------------------------------------------

    def _handlers(self) -> dict[int, Handler]:
        return {
            10: handler(FIND_COORDINATOR, self._find),
            JOIN_GROUP.key: later(JOIN_GROUP, self._join),
            SYNC_GROUP.key: later(SYNC_GROUP, self._sync),
            HEARTBEAT.key: later(HEARTBEAT, self._beat),
            LEAVE_GROUP.key: later(LEAVE_GROUP, self._leave),
            OFFSET_COMMIT.key: later(OFFSET_COMMIT, self._commit),
            OFFSET_FETCH.key: later(OFFSET_FETCH, self._fetch),
        }

    def _find(self, request: Request, wanted: dict[str, Any]) -> dict[str, Any]:
        node = self.coordinator(wanted["key"])
        place = request.broker.view.places.get(node)
        missing = NONE if place is not None else COORDINATOR_NOT_AVAILABLE
        return {
            "throttle_time_ms": 0,
            "error_code": request.code or missing,
            "error_message": None,
            "node_id": node,
            "host": "" if place is None else place.address.host,
            "port": -1 if place is None else place.address.port,
        }

    def _refusal(self, request: Request, group: str) -> int:
        """Why this broker does not speak for a group, or 0."""
        if request.code:
            return request.code
        if self.coordinator(group) != request.broker.node_id:
            return NOT_COORDINATOR
        return NONE if group in self.groups else COORDINATOR_LOAD_IN_PROGRESS

    def _fated(self, request: Request, reply: Reply) -> Reply | None:
        """How to reply, if the request gets that far: by breaking the connection, perhaps."""
        for at, (api, fate) in enumerate(self._fates):
            if api == request.asked.api:
                del self._fates[at]
                if fate is Fate.LOST_AFTER:
                    return lambda values: _break(request)
                _break(request)
                return None
        return reply

    def _join(self, request: Request, wanted: dict[str, Any], reply: Reply) -> None:
        if (fated := self._fated(request, reply)) is None:
            return
        if code := self._refusal(request, wanted["group_id"]):
            fated(join_answer(code, member_id=wanted["member_id"]))
        else:
            self.groups[wanted["group_id"]].join(wanted, request.asked.version, fated)

    def _sync(self, request: Request, wanted: dict[str, Any], reply: Reply) -> None:
        if (fated := self._fated(request, reply)) is None:
            return
        if code := self._refusal(request, wanted["group_id"]):
            fated(sync_answer(code))
        else:
            self.groups[wanted["group_id"]].sync(wanted, fated)

    def _beat(self, request: Request, wanted: dict[str, Any], reply: Reply) -> None:
        if (fated := self._fated(request, reply)) is None:
            return
        code = self._refusal(request, wanted["group_id"])
        if code == COORDINATOR_LOAD_IN_PROGRESS:
            code = NONE  # it does not know better yet, and says so to nobody
        elif not code:
            code = self.groups[wanted["group_id"]].heartbeat(wanted)
        fated({"throttle_time_ms": 0, "error_code": code})

    def _leave(self, request: Request, wanted: dict[str, Any], reply: Reply) -> None:
        if (fated := self._fated(request, reply)) is None:
            return
        code, rows = self._refusal(request, wanted["group_id"]), []
        alone = {"member_id": wanted.get("member_id"), "group_instance_id": None}
        if not code:
            group = self.groups[wanted["group_id"]]
            for row in wanted.get("members", [alone]):
                left = group.leave(row["member_id"], row["group_instance_id"])
                rows.append({**row, "error_code": left})
            code = NONE if "members" in wanted else rows[0]["error_code"]
        fated({"throttle_time_ms": 0, "error_code": code, "members": rows})

    def _commit(self, request: Request, wanted: dict[str, Any], reply: Reply) -> None:
        if (fated := self._fated(request, reply)) is None:
            return
        name = wanted["group_id"]
        code = self._refusal(request, name) or self.groups[name].may_commit(wanted)
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    self._keep(wanted, topic["name"], row, code) for row in topic["partitions"]
                ],
            }
            for topic in wanted["topics"]
        ]
        fated({"throttle_time_ms": 0, "topics": topics})

    def _keep(
        self, wanted: dict[str, Any], topic: str, row: dict[str, Any], code: int
    ) -> dict[str, int]:
        at = topic, row["partition"]
        if not code and self.view.find(*at) is None:
            code = UNKNOWN_TOPIC_OR_PARTITION
        if not code:
            group = wanted["group_id"]
            self.shelf.on_commit(group, wanted["member_id"], at, row["offset"])
            self.shelf.offsets.setdefault(group, {})[at] = row
        return {"partition": row["partition"], "error_code": code}

    def _fetch(self, request: Request, wanted: dict[str, Any], reply: Reply) -> None:
        if (fated := self._fated(request, reply)) is None:
            return
        group = wanted["group_id"]
        code, kept = self._refusal(request, group), self.shelf.offsets.get(group, {})
        asked = wanted["topics"]
        if asked is None:
            names = sorted({topic for topic, _ in kept})
            asked = [
                {"name": name, "partitions": [n for topic, n in sorted(kept) if topic == name]}
                for name in names
            ]
        none: dict[str, Any] = {"offset": -1, "leader_epoch": -1, "metadata": ""}
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {"leader_epoch": -1}
                    | (none if code else kept.get((topic["name"], number), none))
                    | {"partition": number, "error_code": code}
                    for number in topic["partitions"]
                ],
            }
            for topic in asked
        ]
        fated({"throttle_time_ms": 0, "topics": topics, "error_code": code})


def _break(request: Request) -> None:
    request.broker.left(request.wire)
    request.wire.end()
