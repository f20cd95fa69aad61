"""The API ConsumerGroupHeartbeat (KIP-848) of fake coordinators, with their timeouts.

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
    """An error response to ConsumerGroupHeartbeat, with its error code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class ConsumerGroups(Coordinators):
    """The KIP-848 groups of a cluster. They keep their state when their coordinator changes.

    A member is removed if it sends no heartbeat for `session_timeout` seconds, or if it does not
    revoke partitions within its own rebalance timeout.
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
        """The handlers of the group APIs by API key, for `FakeCluster(handlers=...)`."""
        return {**super().handlers, 68: handler(CONSUMER_GROUP_HEARTBEAT, self._answer)}

    def holder(self, group_id: str, view: View, tp: TopicPartition) -> str | None:
        """Return the id of the member that has a partition and did not confirm its revocation.

        Return None if there is no such member. `view` is the cluster state, which has the topic
        ids.
        """
        topic = view.topics.get(tp.topic)
        if topic is None or group_id not in self.groups:
            return None
        return self.groups[group_id].holder((topic.topic_id, tp.partition))

    def move(self, group_id: str, node_id: int) -> None:
        """Move a group to another coordinator, which restarts the session of each member."""
        super().move(group_id, node_id)
        if group_id in self.groups:
            for member in self.groups[group_id].members.values():
                self._wait_for(group_id, member)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- heartbeats ------------------------------------------------------------------------------

    def _answer(self, request: Request, received: Row) -> Row:
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
                row |= self._beat(request, received)
        except _Refused as refused:
            row |= {"error_code": refused.code, "error_message": refused.message}
        self.lose_after(request)
        return row

    def _beat(self, request: Request, received: Row) -> Row:
        group_id, epoch = received["group_id"], received["member_epoch"]
        if self.coordinator(request.broker.view, group_id) != request.broker.node_id:
            raise _Refused(NOT_COORDINATOR, "This is not the correct coordinator.")
        self._brokers_running[group_id] = lambda: request.broker.running
        _check(received)
        if epoch != JOIN_EPOCH and group_id not in self.groups:
            raise _Refused(GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        group = self.groups[group_id]
        if epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(group_id, _member(group, received), epoch)
        member = _joined(group, received) if epoch == JOIN_EPOCH else _member(group, received)
        owned = _owned(received)
        _check_epoch(member, epoch, owned)
        return self._go_on(request.broker.view, group_id, member, received)

    def _go_on(self, view: View, group_id: str, member: Member, received: Row) -> Row:
        group, owned, before = self.groups[group_id], _owned(received), member.assigned
        if _subscribe(member, received):
            group.epoch += 1
        topics = {
            name: frozenset((topic.topic_id, partition.number) for partition in topic.partitions)
            for name, topic in view.topics.items()
        }
        group.divide(topics, lambda regex, name: re.fullmatch(regex, name) is not None)
        stood = member.epoch, member.state, member.revoking
        group.reconcile(member, owned)
        moved = stood != (member.epoch, member.state, member.revoking)
        self._wait_for(group_id, member, restart=moved)
        full = received["rebalance_timeout_ms"] >= 0 or received["member_epoch"] == JOIN_EPOCH
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

    # --- timeouts --------------------------------------------------------------------------------

    def _wait_for(self, group_id: str, member: Member, *, restart: bool = True) -> None:
        """Restart the session timer of a member, and start or stop its rebalance timer.

        The rebalance timer runs while the member must revoke partitions. `restart` says whether a
        running rebalance timer starts again.
        """
        self._start("session", group_id, member, self._session_timeout)
        if member.state is not State.UNREVOKED:
            self._stop("rebalance", group_id, member)
        elif restart:
            self._start("rebalance", group_id, member, member.rebalance_timeout)

    def _stop(self, kind: str, group_id: str, member: Member) -> None:
        timer = self._timers.pop((kind, group_id, member.member_id), None)
        if timer is not None:
            timer.cancel()

    def _start(self, kind: str, group_id: str, member: Member, seconds: float) -> None:
        key = kind, group_id, member.member_id
        self._stop(kind, group_id, member)

        def give_up() -> None:
            del self._timers[key]
            if not self._brokers_running[group_id]():
                self._start(kind, group_id, member, seconds)  # the next member gets its own timer
                return
            self.given_up.append(member.member_id)
            self._forget(group_id, member)

        self._timers[key] = asyncio.get_running_loop().call_later(seconds, give_up)

    def _forget(self, group_id: str, member: Member) -> None:
        for kind in ("session", "rebalance"):
            self._stop(kind, group_id, member)
        self.groups[group_id].remove(member)

    # --- commits ---------------------------------------------------------------------------------

    def refusal(self, group_id: str, member_id: str, generation: int) -> int:
        """Return the error code for a member's OffsetCommit, or 0 if it is accepted."""
        members = self.groups[group_id].members if group_id in self.groups else {}
        if generation < 0 and not members:
            return NONE
        if member_id not in members:
            return UNKNOWN_MEMBER_ID
        return NONE if members[member_id].epoch == generation else STALE_MEMBER_EPOCH


def _check(received: Row) -> None:
    """Raise `_Refused` if a heartbeat is invalid, whatever the state of the group."""
    joining = received["member_epoch"] == JOIN_EPOCH
    if received["rack_id"] == "":
        raise _Refused(INVALID_REQUEST, "RackId can't be empty.")
    if joining and received["rebalance_timeout_ms"] == -1:
        reason = "RebalanceTimeoutMs must be provided in first request."
        raise _Refused(INVALID_REQUEST, reason)
    if joining and received["topic_partitions"] != []:
        raise _Refused(INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if received["server_assignor"] not in _ASSIGNORS:
        reason = f"ServerAssignor {received['server_assignor']} is not supported."
        raise _Refused(UNSUPPORTED_ASSIGNOR, reason)
    try:
        re.compile(received.get("subscribed_topic_regex") or "")
    except re.error as error:
        raise _Refused(INVALID_REGULAR_EXPRESSION, str(error)) from None


def _member(group: Group, received: Row) -> Member:
    """Return the member that sent the heartbeat `received`.

    Raise `_Refused` if the member is unknown or fenced.
    """
    member_id, instance = received["member_id"], received["instance_id"]
    if instance is not None:
        static = group.static(instance)
        if static is None:
            raise _Refused(UNKNOWN_MEMBER_ID, f"Instance id {instance} is unknown.")
        if static.member_id != member_id:
            raise _Refused(FENCED_INSTANCE_ID, f"{member_id} was fenced by {static.member_id}.")
    if member_id not in group.members:
        raise _Refused(UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group.")
    return group.members[member_id]


def _joined(group: Group, received: Row) -> Member:
    """Return the member that sent a heartbeat with epoch 0, which means that it joins.

    Add the member to the group if it is new. Raise `_Refused` if a live member has the same
    instance id.
    """
    member_id, instance = received["member_id"], received["instance_id"]
    static = group.static(instance)
    if static is not None and static.member_id != member_id:
        if static.epoch != AWAY:
            raise _Refused(UNRELEASED_INSTANCE_ID, f"{instance} is owned by {static.member_id}.")
        return group.replace(static, member_id)
    if member_id not in group.members:
        group.members[member_id] = Member(member_id, instance)
    return group.members[member_id]


def _check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    lost_answer = epoch == member.previous_epoch and owned is not None and owned <= member.assigned
    if epoch > member.epoch or not lost_answer:
        reason = f"The member epoch is {epoch} in place of {member.epoch}."
        raise _Refused(FENCED_MEMBER_EPOCH, reason)


def _subscribe(member: Member, received: Row) -> bool:
    """Store the subscription in a heartbeat. Return whether the member's subscription changed."""
    before = (member.topics, member.regex) if member.subscribed else None
    member.subscribed = True
    if received["subscribed_topic_names"] is not None:
        member.topics = frozenset(received["subscribed_topic_names"])
    if received.get("subscribed_topic_regex") is not None:
        member.regex = received["subscribed_topic_regex"]
    if received["rebalance_timeout_ms"] >= 0:
        member.rebalance_timeout = received["rebalance_timeout_ms"] / 1000
    return before != (member.topics, member.regex)


def _owned(received: Row) -> Partitions | None:
    rows = received["topic_partitions"]
    if rows is None:
        return None
    return frozenset((row["topic_id"], number) for row in rows for number in row["partitions"])


def _rows(partitions: Partitions) -> list[list[object]]:
    by_topic: dict[Any, list[int]] = defaultdict(list)
    for topic_id, number in sorted(partitions or NOTHING):
        by_topic[topic_id].append(number)
    return [[topic_id, numbers, {}] for topic_id, numbers in by_topic.items()]
