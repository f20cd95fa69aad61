"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and DescribeGroups of the classic group protocol.

They support static members, reasons for joining, and member ids that the coordinator assigns before
the join. aiokafka's versions of these requests support none of these.
"""

from collections.abc import Mapping
from typing import Final

from asyncconsumer.aiokafka_parts import Boolean, Int16, Int32
from asyncconsumer.protocol.schema import Api, ArrayOf, BytesField, Field, TableRequest, Text

_MAX_REASON_LENGTH: Final = 255  # characters of a reason that brokers accept

JOIN_GROUP: Final = Api(
    name="JoinGroup",
    key=11,
    versions=range(2, 10),
    flexible_since=6,
    request=(
        Field("group_id", Text),
        Field("session_timeout_ms", Int32),
        Field("rebalance_timeout_ms", Int32),
        Field("member_id", Text),
        Field("group_instance_id", Text, 5),
        Field("protocol_type", Text),
        Field("protocols", ArrayOf(Field("name", Text), Field("metadata", BytesField))),
        Field("reason", Text, 8),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field("generation", Int32),
        Field("protocol_type", Text, 7),
        Field("protocol", Text),
        Field("leader", Text),
        Field("skip_assignment", Boolean, 9),
        Field("member_id", Text),
        Field(
            "members",
            ArrayOf(
                Field("member_id", Text),
                Field("group_instance_id", Text, 5),
                Field("metadata", BytesField),
            ),
        ),
    ),
)

SYNC_GROUP: Final = Api(
    name="SyncGroup",
    key=14,
    versions=range(6),
    flexible_since=4,
    request=(
        Field("group_id", Text),
        Field("generation", Int32),
        Field("member_id", Text),
        Field("group_instance_id", Text, 3),
        Field("protocol_type", Text, 5),
        Field("protocol", Text, 5),
        Field("assignments", ArrayOf(Field("member_id", Text), Field("assignment", BytesField))),
    ),
    response=(
        Field("throttle_time_ms", Int32, 1),
        Field("error_code", Int16),
        Field("protocol_type", Text, 5),
        Field("protocol", Text, 5),
        Field("assignment", BytesField),
    ),
)

HEARTBEAT: Final = Api(
    name="Heartbeat",
    key=12,
    versions=range(5),
    flexible_since=4,
    request=(
        Field("group_id", Text),
        Field("generation", Int32),
        Field("member_id", Text),
        Field("group_instance_id", Text, 3),
    ),
    response=(Field("throttle_time_ms", Int32, 1), Field("error_code", Int16)),
)

LEAVE_GROUP: Final = Api(
    name="LeaveGroup",
    key=13,
    versions=range(6),
    flexible_since=4,
    request=(
        Field("group_id", Text),
        Field("member_id", Text, 0, 2),
        Field(
            "members",
            ArrayOf(
                Field("member_id", Text),
                Field("group_instance_id", Text),
                Field("reason", Text, 5),
            ),
            3,
        ),
    ),
    response=(
        Field("throttle_time_ms", Int32, 1),
        Field("error_code", Int16),
        Field(
            "members",
            ArrayOf(
                Field("member_id", Text),
                Field("group_instance_id", Text),
                Field("error_code", Int16),
            ),
            3,
        ),
    ),
)

DESCRIBE_GROUPS: Final = Api(
    name="DescribeGroups",
    key=15,
    versions=range(6),
    flexible_since=5,
    request=(
        Field("groups", ArrayOf(Text)),
        Field("include_authorized_operations", Boolean, 3),
    ),
    response=(
        Field("throttle_time_ms", Int32, 1),
        Field(
            "groups",
            ArrayOf(
                Field("error_code", Int16),
                Field("group_id", Text),
                Field("group_state", Text),
                Field("protocol_type", Text),
                Field("protocol", Text),
                Field(
                    "members",
                    ArrayOf(
                        Field("member_id", Text),
                        Field("group_instance_id", Text, 4),
                        Field("client_id", Text),
                        Field("client_host", Text),
                        Field("metadata", BytesField),
                        Field("assignment", BytesField),
                    ),
                ),
                Field("authorized_operations", Int32, 3),
            ),
        ),
    ),
)


class JoinGroupRequest(TableRequest, api=JOIN_GROUP):
    """A JoinGroup request, with which a member joins the next generation of a group.

    The coordinator responds when all members have joined. ``protocols`` has the names of assignors
    in order of preference, with the subscription for each. From version 4 on, the first response to
    a new member is the error MEMBER_ID_REQUIRED, which contains its member id. ``reason`` is for
    the broker's log.
    """

    def __init__(
        self,
        group_id: str,
        protocols: Mapping[str, bytes],
        *,
        protocol_type: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        member_id: str = "",
        group_instance_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        values = {
            "group_id": group_id,
            "session_timeout_ms": session_timeout_ms,
            "rebalance_timeout_ms": rebalance_timeout_ms,
            "member_id": member_id,
            "group_instance_id": group_instance_id,
            "protocol_type": protocol_type,
            "protocols": [
                {"name": name, "metadata": metadata} for name, metadata in protocols.items()
            ],
            "reason": _truncate(reason),
        }
        super().__init__(values, min_version=5 if group_instance_id is not None else 2)


class SyncGroupRequest(TableRequest, api=SYNC_GROUP):
    """A SyncGroup request for the assignment of a member.

    The request of the group leader also has the assignments of all members. The coordinator
    responds to the other members after it has received the leader's request.
    """

    def __init__(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        *,
        protocol_type: str,
        protocol: str,
        assignments: Mapping[str, bytes],
        group_instance_id: str | None = None,
    ) -> None:
        values = {
            "group_id": group_id,
            "generation": generation,
            "member_id": member_id,
            "group_instance_id": group_instance_id,
            "protocol_type": protocol_type,
            "protocol": protocol,
            "assignments": [
                {"member_id": member_id, "assignment": assignment}
                for member_id, assignment in assignments.items()
            ],
        }
        super().__init__(values, min_version=3 if group_instance_id is not None else 0)


class HeartbeatRequest(TableRequest, api=HEARTBEAT):
    """A Heartbeat request of a member of a classic group."""

    def __init__(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        *,
        group_instance_id: str | None = None,
    ) -> None:
        values = {
            "group_id": group_id,
            "generation": generation,
            "member_id": member_id,
            "group_instance_id": group_instance_id,
        }
        super().__init__(values, min_version=3 if group_instance_id is not None else 0)


class LeaveGroupRequest(TableRequest, api=LEAVE_GROUP):
    """A LeaveGroup request, which removes a member before its session timeout."""

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        group_instance_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        member = {
            "member_id": member_id,
            "group_instance_id": group_instance_id,
            "reason": _truncate(reason),
        }
        values = {"group_id": group_id, "member_id": member_id, "members": [member]}
        super().__init__(values, min_version=3 if group_instance_id is not None else 0)


class DescribeGroupsRequest(TableRequest, api=DESCRIBE_GROUPS):
    """A DescribeGroups request for the members of a group, their subscriptions and assignments."""

    def __init__(self, group_id: str) -> None:
        super().__init__({"groups": [group_id], "include_authorized_operations": False})


def _truncate(reason: str | None) -> str | None:
    return None if reason is None else reason[:_MAX_REASON_LENGTH]
