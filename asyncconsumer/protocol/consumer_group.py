"""ConsumerGroupHeartbeat of the KIP-848 group protocol, which aiokafka lacks."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from asyncconsumer.aiokafka_parts import Int16, Int32
from asyncconsumer.protocol.schema import Api, ArrayOf, Field, NullableOf, TableRequest, Text, Uuid

JOIN_EPOCH: Final = 0
"""The member epoch to join the group."""
LEAVE_EPOCH: Final = -1
"""The member epoch to leave the group."""
STATIC_LEAVE_EPOCH: Final = -2
"""The member epoch for a static member that leaves temporarily."""

_TOPIC_PARTITIONS: Final = ArrayOf(Field("topic_id", Uuid), Field("partitions", ArrayOf(Int32)))

CONSUMER_GROUP_HEARTBEAT: Final = Api(
    name="ConsumerGroupHeartbeat",
    key=68,
    versions=range(2),
    flexible_since=0,
    request=(
        Field("group_id", Text),
        Field("member_id", Text),
        Field("member_epoch", Int32),
        Field("instance_id", Text),
        Field("rack_id", Text),
        Field("rebalance_timeout_ms", Int32),
        Field("subscribed_topic_names", ArrayOf(Text)),
        Field("subscribed_topic_regex", Text, 1),
        Field("server_assignor", Text),
        Field("topic_partitions", _TOPIC_PARTITIONS),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field("error_message", Text),
        Field("member_id", Text),
        Field("member_epoch", Int32),
        Field("heartbeat_interval_ms", Int32),
        Field("assignment", NullableOf(Field("topic_partitions", _TOPIC_PARTITIONS))),
    ),
)


class ConsumerGroupHeartbeatRequest(TableRequest, api=CONSUMER_GROUP_HEARTBEAT):
    """A ConsumerGroupHeartbeat request. A field is None if its value has not changed.

    In the response, `assignment` is None if it has not changed. Otherwise it is a tuple whose first
    value is an array of the assigned topics: topic id, partitions and tags. From version 1 on,
    members generate their own ids.
    """

    def __init__(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        *,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        topics: Sequence[str] | None = None,
        topic_regex: str | None = None,
        server_assignor: str | None = None,
        owned: Mapping[UUID, Sequence[int]] | None = None,
    ) -> None:
        rows = None
        if owned is not None:
            rows = [
                {"topic_id": topic_id, "partitions": list(numbers)}
                for topic_id, numbers in owned.items()
            ]
        values = {
            "group_id": group_id,
            "member_id": member_id,
            "member_epoch": member_epoch,
            "instance_id": instance_id,
            "rack_id": rack_id,
            "rebalance_timeout_ms": rebalance_timeout_ms,
            "subscribed_topic_names": topics,
            "subscribed_topic_regex": topic_regex,
            "server_assignor": server_assignor,
            "topic_partitions": rows,
        }
        super().__init__(values, min_version=1 if topic_regex is not None else 0)
