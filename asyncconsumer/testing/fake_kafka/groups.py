"""A fake cluster that also coordinates classic groups and keeps their offsets.

```python
async with GroupCluster(Random(1)) as cluster:
    cluster.move_coordinator("billing")
```
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from asyncconsumer.aiokafka_parts import Int8, Int16, Int32
from asyncconsumer.protocol.classic_group import (
    DESCRIBE_GROUPS,
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
    UNSTABLE_OFFSET_COMMIT,
)
from asyncconsumer.testing.fake_kafka.fake import HANDLERS, FakeCluster
from asyncconsumer.testing.fake_kafka.group_members import (
    NOT_DESCRIBED,
    CoordinatorStorage,
    join_answer,
    sync_answer,
)
from asyncconsumer.testing.fake_kafka.group_state import FakeGroup
from asyncconsumer.testing.fake_kafka.tables import Reply, handler, later
from asyncconsumer.types import TopicPartition

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


class GroupCluster(FakeCluster):
    """A FakeCluster that also coordinates classic groups.

    If a coordinator is killed, another broker loads the state of the group from `storage`. This is
    the state after the last completed rebalance, and the committed offsets.
    """

    def __init__(
        self,
        randomness: Random,
        *,
        handlers: Mapping[int, Handler] = HANDLERS,
        **options: Any,  # noqa: ANN401 - FakeCluster checks them
    ) -> None:
        super().__init__(randomness, handlers={**handlers, **self._handlers()}, **options)
        self.storage = CoordinatorStorage()
        self.groups: dict[str, FakeGroup] = {}
        self._homes: dict[str, int] = {}  # the node that coordinates each group

    def close(self) -> None:
        """Close all connections and cancel all timers."""
        for group in self.groups.values():
            group.unload()
        super().close()

    # --- faults ----------------------------------------------------------------------------------

    def coordinator(self, group: str) -> int:
        """Return the id of the broker that coordinates a group.

        Return -1 if that broker was killed and no other has replaced it yet.
        """
        if group not in self._homes:
            self._settle(group, self.randomness.choice(sorted(self.view.endpoints)))
        return self._homes[group]

    def move_coordinator(
        self, group: str, node_id: int | None = None, *, loading: float = 0.0
    ) -> int:
        """Make another broker the coordinator of a group, by default a random one. Return its id.

        Requests get an error for `loading` seconds, until the new coordinator has loaded the group.
        """
        others = [node for node in self.view.endpoints if node != self.coordinator(group)]
        if node_id is None:
            node_id = self.randomness.choice(sorted(others) or [self.coordinator(group)])
        if (loaded := self.groups.pop(group, None)) is not None and self._homes[group] >= 0:
            self.brokers[self._homes[group]].when_running(loaded.unload)
        self._settle(group, node_id, loading=loading)
        return node_id

    def kill(self, node_id: int) -> None:
        """Kill a broker. Other brokers coordinate its groups after the failover time."""
        super().kill(node_id)
        for name in [name for name, home in self._homes.items() if home == node_id]:
            if (group := self.groups.pop(name, None)) is not None:
                group.unload()
            self._homes[name] = -1
            asyncio.get_running_loop().call_later(self.failover, self._find_home, name, node_id)

    def _find_home(self, group: str, before: int) -> None:
        if self._homes[group] < 0:
            back = self.brokers[before].state is not State.DOWN
            alive = [before] if back else sorted(self.view.endpoints)
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
            self.groups[group] = FakeGroup(group, broker, self.storage, self.randomness)

    # --- requests --------------------------------------------------------------------------------

    def _handlers(self) -> dict[int, Handler]:
        return {
            10: handler(FIND_COORDINATOR, self._find),
            JOIN_GROUP.key: later(JOIN_GROUP, self._join),
            SYNC_GROUP.key: later(SYNC_GROUP, self._sync),
            HEARTBEAT.key: later(HEARTBEAT, self._beat),
            LEAVE_GROUP.key: later(LEAVE_GROUP, self._leave),
            DESCRIBE_GROUPS.key: later(DESCRIBE_GROUPS, self._describe),
            OFFSET_COMMIT.key: later(OFFSET_COMMIT, self._commit),
            OFFSET_FETCH.key: later(OFFSET_FETCH, self._fetch),
        }

    def _find(self, request: Request, received: dict[str, Any]) -> dict[str, Any]:
        node = self.coordinator(received["key"])
        endpoint = request.broker.view.endpoints.get(node)
        missing = NONE if endpoint is not None else COORDINATOR_NOT_AVAILABLE
        return {
            "throttle_time_ms": 0,
            "error_code": request.code or missing,
            "error_message": None,
            "node_id": node,
            "host": "" if endpoint is None else endpoint.address.host,
            "port": -1 if endpoint is None else endpoint.address.port,
        }

    def _refusal(self, request: Request, group: str) -> int:
        """Return the error code if the requested broker cannot serve a group, or 0.

        A broker cannot serve a group that it does not coordinate, or that it still loads.
        """
        if request.code:
            return request.code
        if self.coordinator(group) != request.broker.node_id:
            return NOT_COORDINATOR
        return NONE if group in self.groups else COORDINATOR_LOAD_IN_PROGRESS

    def _join(self, request: Request, received: dict[str, Any], reply: Reply) -> None:
        if code := self._refusal(request, received["group_id"]):
            reply(join_answer(code, member_id=received["member_id"]))
        else:
            self.groups[received["group_id"]].join(received, request.received.version, reply)

    def _sync(self, request: Request, received: dict[str, Any], reply: Reply) -> None:
        if code := self._refusal(request, received["group_id"]):
            reply(sync_answer(code))
        else:
            self.groups[received["group_id"]].sync(received, reply)

    def _beat(self, request: Request, received: dict[str, Any], reply: Reply) -> None:
        code = self._refusal(request, received["group_id"])
        if code == COORDINATOR_LOAD_IN_PROGRESS:
            code = NONE  # a stale broker does not know that it is no longer the coordinator
        elif not code:
            code = self.groups[received["group_id"]].heartbeat(received)
        reply({"throttle_time_ms": 0, "error_code": code})

    def _leave(self, request: Request, received: dict[str, Any], reply: Reply) -> None:
        code, rows = self._refusal(request, received["group_id"]), []
        alone = {"member_id": received.get("member_id"), "group_instance_id": None}
        if not code:
            group = self.groups[received["group_id"]]
            for row in received.get("members", [alone]):
                result = group.leave(row["member_id"], row["group_instance_id"])
                rows.append({**row, "error_code": result})
            code = NONE if "members" in received else rows[0]["error_code"]
        reply({"throttle_time_ms": 0, "error_code": code, "members": rows})

    def _describe(self, request: Request, received: dict[str, Any], reply: Reply) -> None:
        rows = []
        for name in received["groups"]:
            code = self._refusal(request, name)
            described = NOT_DESCRIBED if code else self.groups[name].describe()
            rows.append({**described, "error_code": code, "group_id": name})
        reply({"throttle_time_ms": 0, "groups": rows})

    def _commit(self, request: Request, received: dict[str, Any], reply: Reply) -> None:
        name = received["group_id"]
        code = self._refusal(request, name) or self._may_commit(name, received)
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    self._keep(received, topic["name"], row, code) for row in topic["partitions"]
                ],
            }
            for topic in received["topics"]
        ]
        reply({"throttle_time_ms": 0, "topics": topics})

    def _may_commit(self, group: str, received: dict[str, Any]) -> int:
        """Return the error code for an OffsetCommit, or 0 if it is accepted.

        `received` has the fields of the request.
        """
        return self.groups[group].may_commit(received)

    def _is_pending(self, group: str, tp: TopicPartition) -> bool:
        """Return whether an open transaction has an uncommitted offset of the group for `tp`."""
        return False

    def _keep(
        self, received: dict[str, Any], topic: str, row: dict[str, Any], code: int
    ) -> dict[str, int]:
        key = topic, row["partition"]
        if not code and self.view.find(*key) is None:
            code = UNKNOWN_TOPIC_OR_PARTITION
        if not code:
            group = received["group_id"]
            self.storage.on_commit(group, received["member_id"], key, row["offset"])
            self.storage.offsets.setdefault(group, {})[key] = row
        return {"partition": row["partition"], "error_code": code}

    def _fetch(self, request: Request, received: dict[str, Any], reply: Reply) -> None:
        group = received["group_id"]
        code, committed = self._refusal(request, group), self.storage.offsets.get(group, {})
        topics = received["topics"]
        if topics is None:
            names = sorted({topic for topic, _ in committed})
            topics = [
                {"name": name, "partitions": [n for topic, n in sorted(committed) if topic == name]}
                for name in names
            ]
        none: dict[str, Any] = {"offset": -1, "leader_epoch": -1, "metadata": ""}
        stable = received.get("require_stable", False)

        def unstable(tp: TopicPartition) -> int:
            pending = stable and self._is_pending(group, tp)
            return code or (UNSTABLE_OFFSET_COMMIT if pending else NONE)

        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {"leader_epoch": -1}
                    | (none if code else committed.get((topic["name"], number), none))
                    | {
                        "partition": number,
                        "error_code": unstable(TopicPartition(topic["name"], number)),
                    }
                    for number in topic["partitions"]
                ],
            }
            for topic in topics
        ]
        reply({"throttle_time_ms": 0, "topics": topics, "error_code": code})
