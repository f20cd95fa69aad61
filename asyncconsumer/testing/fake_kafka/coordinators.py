"""Fake group coordinators that only store committed offsets."""

import enum
from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from asyncconsumer.protocol.offset_commit import OFFSET_COMMIT, OFFSET_FETCH
from asyncconsumer.testing.fake_kafka.broker import Handler, Request
from asyncconsumer.testing.fake_kafka.codes import (
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
)
from asyncconsumer.testing.fake_kafka.groups import FIND_COORDINATOR
from asyncconsumer.testing.fake_kafka.state import View
from asyncconsumer.testing.fake_kafka.tables import handler
from asyncconsumer.types import TopicPartition

Row = dict[str, Any]


class Fate(enum.Enum):
    """The outcome of one group request: a fault, or DONE. Each value is a description of it."""

    DONE = "the request is answered"
    LOST_BEFORE = "the connection breaks before the request is handled"
    LOST_AFTER = "the connection breaks before the response is sent"


class Coordinators:
    """The coordinator of each group, and the committed offsets of groups without members.

    `fates` are the outcomes of the next commits and heartbeats. The last item is used first.
    `on_commit` is called with each offset before it is committed.
    """

    def __init__(self, randomness: Random) -> None:
        self.committed: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self.on_commit: Callable[[TopicPartition, int], None] = lambda tp, offset: None
        self.fates: list[Fate] = []
        self._randomness = randomness
        self._nodes: dict[str, int] = {}
        self._fate = Fate.DONE

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers of the group APIs by API key, for `FakeCluster(handlers=...)`."""
        return {
            8: handler(OFFSET_COMMIT, self._commit),
            9: handler(OFFSET_FETCH, self._fetch),
            10: handler(FIND_COORDINATOR, self._find),
        }

    def coordinator(self, view: View, group_id: str) -> int:
        """Return the id of the broker that coordinates a group, or -1 if no broker is alive."""
        node = self._nodes.get(group_id, -1)
        if node not in view.endpoints and view.endpoints:
            node = self._randomness.choice(sorted(view.endpoints))
            self.move(group_id, node)
        return node if node in view.endpoints else -1

    def move(self, group_id: str, node_id: int) -> None:
        """Move a group to another coordinator."""
        self._nodes[group_id] = node_id

    def refusal(self, group_id: str, member_id: str, generation: int) -> int:
        """Return the error code for a member's OffsetCommit, or 0 if it is accepted.

        This class accepts all commits. A subclass with members may refuse some.
        """
        return NONE

    # --- lost requests and responses -------------------------------------------------------------

    def lose_before(self, request: Request) -> bool:
        """Take the next outcome from `fates`. If it is LOST_BEFORE, break the connection.

        Return True if the connection was broken. Then the caller must not handle the request.
        """
        self._fate = self.fates.pop() if self.fates else Fate.DONE
        if self._fate is Fate.LOST_BEFORE:
            request.transport.end()
        return self._fate is Fate.LOST_BEFORE

    def lose_after(self, request: Request) -> None:
        """Break the connection before the response is sent, if this request is to be LOST_AFTER."""
        if self._fate is Fate.LOST_AFTER:
            request.transport.end()

    # --- requests --------------------------------------------------------------------------------

    def _find(self, request: Request, received: Row) -> Row:
        view = request.broker.view
        node = self.coordinator(view, received["key"])
        endpoint = view.endpoints.get(node)
        code = request.code or (NONE if endpoint is not None else COORDINATOR_NOT_AVAILABLE)
        available = endpoint is not None and not code
        return {
            "throttle_time_ms": 0,
            "error_code": code,
            "error_message": None,
            "node_id": node if available else -1,
            "host": endpoint.address.host if endpoint is not None and available else "",
            "port": endpoint.address.port if endpoint is not None and available else -1,
        }

    def _is_elsewhere(self, request: Request, group_id: str) -> int:
        is_coordinator = self.coordinator(request.broker.view, group_id) == request.broker.node_id
        return request.code or (NONE if is_coordinator else NOT_COORDINATOR)

    def _commit(self, request: Request, received: Row) -> Row:
        group_id = received["group_id"]
        lost = self.lose_before(request)
        code = self._is_elsewhere(request, group_id)
        code = code or self.refusal(group_id, received["member_id"], received["generation"])
        for topic in () if code or lost else received["topics"]:
            for row in topic["partitions"]:
                tp = TopicPartition(topic["name"], row["partition"])
                self.on_commit(tp, row["offset"])
                self.committed[group_id][tp] = row["offset"]
        self.lose_after(request)
        return {
            "throttle_time_ms": 0,
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        {"partition": row["partition"], "error_code": code}
                        for row in topic["partitions"]
                    ],
                }
                for topic in received["topics"]
            ],
        }

    def _fetch(self, request: Request, received: Row) -> Row:
        code, known = self._is_elsewhere(request, received["group_id"]), {}
        if not code:
            known = self.committed[received["group_id"]]
        return {
            "throttle_time_ms": 0,
            "error_code": code,
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        {
                            "partition": number,
                            "offset": known.get(TopicPartition(topic["name"], number), -1),
                            "leader_epoch": -1,
                            "metadata": "",
                            "error_code": code,
                        }
                        for number in topic["partitions"]
                    ],
                }
                for topic in received["topics"]
            ],
        }
