"""ConsumerGroupHeartbeat as a coordinator answers it, and what happens when members are silent.

```python
groups = ConsumerGroups(Random(1), session_timeout=45)
async with FakeCluster(Random(2), handlers={**HANDLERS, **groups.handlers}) as cluster: ...
```
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from asyncconsumer.protocol.consumer_group import (
    CONSUMER_GROUP_HEARTBEAT,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
)
from asyncconsumer.testing.fake_kafka.broker import Handler, Request
from asyncconsumer.testing.fake_kafka.codes import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    INVALID_REGULAR_EXPRESSION,
    INVALID_REQUEST,
    NONE,
    NOT_COORDINATOR,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_ASSIGNOR,
)
from asyncconsumer.testing.fake_kafka.consumer_group import (
    AWAY,
    NOTHING,
    Group,
    Member,
    Partitions,
    State,
)
from asyncconsumer.testing.fake_kafka.coordinators import Coordinators
from asyncconsumer.testing.fake_kafka.state import View
from asyncconsumer.testing.fake_kafka.tables import handler
from asyncconsumer.types import TopicPartition

Row = dict[str, Any]
_ASSIGNORS: Final = (None, "uniform", "range")


class _Refused(Exception):
    """The answer is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class ConsumerGroups(Coordinators):
    """All groups of KIP-848 of a cluster. Their state survives their coordinators.

    Seconds: a member is given up when it is silent for a `session_timeout`, or when it does not let
    go of partitions within its own rebalance timeout.
    """

    def __init__(
        self, randomness: Random, *, session_timeout: float = 45.0, interval: float = 5.0
    ) -> None:
        super().__init__(randomness)
        self.groups: dict[str, Group] = defaultdict(Group)
        self.given_up: list[str] = []
        self._session_timeout = session_timeout
        self._interval = interval
        self._timers: dict[tuple[str, str, str], asyncio.TimerHandle] = {}
        self._brokers_running: dict[str, Callable[[], bool]] = {}

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """For a FakeCluster."""
        return {**super().handlers, 68: handler(CONSUMER_GROUP_HEARTBEAT, self._answer)}

    def holder(self, group_id: str, view: View, at: TopicPartition) -> str | None:
        """The member that has a partition now, as far as the coordinator knows."""
        topic = view.topics.get(at.topic)
        if topic is None or group_id not in self.groups:
            return None
        return self.groups[group_id].holder((topic.topic_id, at.partition))

    def move(self, group_id: str, node_id: int) -> None:
        """Another broker coordinates a group from now on; it gives everybody a whole session."""
        super().move(group_id, node_id)
        if group_id in self.groups:
            for member in self.groups[group_id].members.values():
                self._wait_for(group_id, member)

    def close(self) -> None:
        """Wait for nobody any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- heartbeats ------------------------------------------------------------------------------

    def _answer(self, request: Request, asked: Row) -> Row:
        row: Row = {
            "throttle_time_ms": 0,
            "error_code": request.code,
            "error_message": None,
            "member_id": None,
            "member_epoch": 0,
            "heartbeat_interval_ms": 0,
            "assignment": None,
        }
        if self.lose_before(request):
            return row
        try:
            if not request.code:
                row |= self._beat(request, asked)
        except _Refused as refused:
            row |= {"error_code": refused.code, "error_message": refused.message}
        self.lose_after(request)
        return row

    def _beat(self, request: Request, asked: Row) -> Row:
        group_id, epoch = asked["group_id"], asked["member_epoch"]
        if self.coordinator(request.broker.view, group_id) != request.broker.node_id:
            raise _Refused(NOT_COORDINATOR, "This is not the correct coordinator.")
        self._brokers_running[group_id] = lambda: request.broker.running
        _check(asked)
        if epoch != JOIN_EPOCH and group_id not in self.groups:
            raise _Refused(GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        group = self.groups[group_id]
        if epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(group_id, _member(group, asked), epoch)
        member = _joined(group, asked) if epoch == JOIN_EPOCH else _member(group, asked)
        owned = _owned(asked)
        _check_epoch(member, epoch, owned)
        return self._go_on(request.broker.view, group_id, member, asked)

    def _go_on(self, view: View, group_id: str, member: Member, asked: Row) -> Row:
        group, owned, before = self.groups[group_id], _owned(asked), member.assigned
        if _subscribe(member, asked):
            group.epoch += 1
        topics = {
            name: frozenset((topic.topic_id, one.number) for one in topic.partitions)
            for name, topic in view.topics.items()
        }
        group.divide(topics, lambda regex, name: re.fullmatch(regex, name) is not None)
        stood = member.epoch, member.state, member.revoking
        group.reconcile(member, owned)
        anew = stood != (member.epoch, member.state, member.revoking)
        self._wait_for(group_id, member, anew=anew)
        full = asked["rebalance_timeout_ms"] >= 0 or asked["member_epoch"] == JOIN_EPOCH
        changed = full or member.assigned != before
        return {
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval_ms": int(self._interval * 1000),
            "assignment": [_rows(member.assigned), {}] if changed else None,
        }

    def _leave(self, group_id: str, member: Member, epoch: int) -> Row:
        if epoch == STATIC_LEAVE_EPOCH:
            member.epoch = AWAY
        else:
            self._forget(group_id, member)
        return {"member_id": member.member_id, "member_epoch": epoch}

    # --- patience --------------------------------------------------------------------------------

    def _wait_for(self, group_id: str, member: Member, *, anew: bool = True) -> None:
        """Begin a session anew, and a wait for partitions when there are others to wait for."""
        self._start("session", group_id, member, self._session_timeout)
        if member.state is not State.UNREVOKED:
            self._stop("rebalance", group_id, member)
        elif anew:
            self._start("rebalance", group_id, member, member.rebalance_timeout)

    def _stop(self, what: str, group_id: str, member: Member) -> None:
        timer = self._timers.pop((what, group_id, member.member_id), None)
        if timer is not None:
            timer.cancel()

    def _start(self, what: str, group_id: str, member: Member, seconds: float) -> None:
        key = what, group_id, member.member_id
        self._stop(what, group_id, member)

        def give_up() -> None:
            del self._timers[key]
            if not self._brokers_running[group_id]():
                self._start(what, group_id, member, seconds)  # whoever comes after it waits anew
                return
            self.given_up.append(member.member_id)
            self._forget(group_id, member)

        self._timers[key] = asyncio.get_running_loop().call_later(seconds, give_up)

    def _forget(self, group_id: str, member: Member) -> None:
        for what in ("session", "rebalance"):
            self._stop(what, group_id, member)
        self.groups[group_id].remove(member)

    # --- commits ---------------------------------------------------------------------------------

    def refusal(self, group_id: str, member_id: str, generation: int) -> int:
        """Why a commit is not taken."""
        members = self.groups[group_id].members if group_id in self.groups else {}
        if generation < 0 and not members:
            return NONE
        if member_id not in members:
            return UNKNOWN_MEMBER_ID
        return NONE if members[member_id].epoch == generation else STALE_MEMBER_EPOCH


def _check(asked: Row) -> None:
    """What a broker refuses whatever the state of the group is."""
    joining = asked["member_epoch"] == JOIN_EPOCH
    if asked["rack_id"] == "":
        raise _Refused(INVALID_REQUEST, "RackId can't be empty.")
    if joining and asked["rebalance_timeout_ms"] == -1:
        reason = "RebalanceTimeoutMs must be provided in first request."
        raise _Refused(INVALID_REQUEST, reason)
    if joining and asked["topic_partitions"] != []:
        raise _Refused(INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if asked["server_assignor"] not in _ASSIGNORS:
        reason = f"ServerAssignor {asked['server_assignor']} is not supported."
        raise _Refused(UNSUPPORTED_ASSIGNOR, reason)
    try:
        re.compile(asked.get("subscribed_topic_regex") or "")
    except re.error as error:
        raise _Refused(INVALID_REGULAR_EXPRESSION, str(error)) from None


def _member(group: Group, asked: Row) -> Member:
    """The member that speaks, which must be there."""
    who, instance = asked["member_id"], asked["instance_id"]
    if instance is not None:
        static = group.static(instance)
        if static is None:
            raise _Refused(UNKNOWN_MEMBER_ID, f"Instance id {instance} is unknown.")
        if static.member_id != who:
            raise _Refused(FENCED_INSTANCE_ID, f"{who} was fenced by {static.member_id}.")
    if who not in group.members:
        raise _Refused(UNKNOWN_MEMBER_ID, f"Member {who} is not a member of the group.")
    return group.members[who]


def _joined(group: Group, asked: Row) -> Member:
    """The member that speaks, which may be new."""
    who, instance = asked["member_id"], asked["instance_id"]
    static = group.static(instance)
    if static is not None and static.member_id != who:
        if static.epoch != AWAY:
            raise _Refused(UNRELEASED_INSTANCE_ID, f"{instance} is owned by {static.member_id}.")
        return group.replace(static, who)
    if who not in group.members:
        group.members[who] = Member(who, instance)
    return group.members[who]


def _check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    lost_answer = epoch == member.previous_epoch and owned is not None and owned <= member.assigned
    if epoch > member.epoch or not lost_answer:
        reason = f"The member epoch is {epoch} in place of {member.epoch}."
        raise _Refused(FENCED_MEMBER_EPOCH, reason)


def _subscribe(member: Member, asked: Row) -> bool:
    """Take over what changed; whether the target has to change."""
    before = (member.topics, member.regex) if member.subscribed else None
    member.subscribed = True
    if asked["subscribed_topic_names"] is not None:
        member.topics = frozenset(asked["subscribed_topic_names"])
    if asked.get("subscribed_topic_regex") is not None:
        member.regex = asked["subscribed_topic_regex"]
    if asked["rebalance_timeout_ms"] >= 0:
        member.rebalance_timeout = asked["rebalance_timeout_ms"] / 1000
    return before != (member.topics, member.regex)


def _owned(asked: Row) -> Partitions | None:
    rows = asked["topic_partitions"]
    if rows is None:
        return None
    return frozenset((row["topic_id"], number) for row in rows for number in row["partitions"])


def _rows(partitions: Partitions) -> list[list[object]]:
    by_topic: dict[Any, list[int]] = defaultdict(list)
    for topic_id, number in sorted(partitions or NOTHING):
        by_topic[topic_id].append(number)
    return [[topic_id, numbers, {}] for topic_id, numbers in by_topic.items()]
