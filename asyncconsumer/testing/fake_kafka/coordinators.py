"""Who coordinates which group, and what was committed in it."""

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
    """What becomes of a request of a group."""

    DONE = "it is answered"
    LOST_BEFORE = "its connection breaks before it is looked at"
    LOST_AFTER = "its connection breaks before the answer is sent"


class Coordinators:
    """Places of coordinators, and offsets. `fates` are those of the next requests, the last first.

    `on_commit` is shown each offset that is committed, before it is.
    """

    def __init__(self, randomness: Random) -> None:
        self.committed: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self.on_commit: Callable[[TopicPartition, int], None] = lambda at, offset: None
        self.fates: list[Fate] = []
        self._randomness = randomness
        self._nodes: dict[str, int] = {}
        self._fate = Fate.DONE

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """For a FakeCluster."""
        return {
            8: handler(OFFSET_COMMIT, self._commit),
            9: handler(OFFSET_FETCH, self._fetch),
            10: handler(FIND_COORDINATOR, self._find),
        }

    def coordinator(self, view: View, group_id: str) -> int:
        """The node that coordinates a group; -1 while there is none."""
        node = self._nodes.get(group_id, -1)
        if node not in view.places and view.places:
            node = self._randomness.choice(sorted(view.places))
            self.move(group_id, node)
        return node if node in view.places else -1

    def move(self, group_id: str, node_id: int) -> None:
        """Another broker coordinates a group from now on."""
        self._nodes[group_id] = node_id

    def refusal(self, group_id: str, member_id: str, generation: int) -> int:
        """Why a commit is not taken: anybody may commit to a group that nobody keeps."""
        return NONE

    # --- lost requests and answers ---------------------------------------------------------------

    def lose_before(self, request: Request) -> bool:
        """Decide on the fate of a request; whether it is lost now."""
        self._fate = self.fates.pop() if self.fates else Fate.DONE
        if self._fate is Fate.LOST_BEFORE:
            request.wire.end()
        return self._fate is Fate.LOST_BEFORE

    def lose_after(self, request: Request) -> None:
        """Lose the answer, if that is the fate of the request."""
        if self._fate is Fate.LOST_AFTER:
            request.wire.end()

    # --- requests --------------------------------------------------------------------------------

    def _find(self, request: Request, asked: Row) -> Row:
        view = request.broker.view
        node = self.coordinator(view, asked["key"])
        place = view.places.get(node)
        code = request.code or (NONE if place is not None else COORDINATOR_NOT_AVAILABLE)
        there = place is not None and not code
        return {
            "throttle_time_ms": 0,
            "error_code": code,
            "error_message": None,
            "node_id": node if there else -1,
            "host": place.address.host if place is not None and there else "",
            "port": place.address.port if place is not None and there else -1,
        }

    def _is_elsewhere(self, request: Request, group_id: str) -> int:
        here = self.coordinator(request.broker.view, group_id) == request.broker.node_id
        return request.code or (NONE if here else NOT_COORDINATOR)

    def _commit(self, request: Request, asked: Row) -> Row:
        group_id = asked["group_id"]
        lost = self.lose_before(request)
        code = self._is_elsewhere(request, group_id)
        code = code or self.refusal(group_id, asked["member_id"], asked["generation"])
        for topic in () if code or lost else asked["topics"]:
            for row in topic["partitions"]:
                at = TopicPartition(topic["name"], row["partition"])
                self.on_commit(at, row["offset"])
                self.committed[group_id][at] = row["offset"]
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
                for topic in asked["topics"]
            ],
        }

    def _fetch(self, request: Request, asked: Row) -> Row:
        code, known = self._is_elsewhere(request, asked["group_id"]), {}
        if not code:
            known = self.committed[asked["group_id"]]
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
                for topic in asked["topics"]
            ],
        }
