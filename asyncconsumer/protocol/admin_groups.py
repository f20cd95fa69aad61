"""ListGroups, ConsumerGroupDescribe, DeleteGroups and OffsetDelete."""

from collections.abc import Mapping, Sequence
from typing import Final

from asyncconsumer.aiokafka_parts import Int8, Int16, Int32
from asyncconsumer.protocol.schema import (
    Api,
    ArrayOf,
    Field,
    Row,
    TableRequest,
    Text,
    Uuid,
)

LIST_GROUPS: Final = Api(
    name="ListGroups",
    key=16,
    versions=range(6),
    flexible_since=3,
    request=(
        Field("states_filter", ArrayOf(Text), 4),
        Field("types_filter", ArrayOf(Text), 5),
    ),
    response=(
        Field("throttle_time_ms", Int32, 1),
        Field("error_code", Int16),
        Field(
            "groups",
            ArrayOf(
                Field("group_id", Text),
                Field("protocol_type", Text),
                Field("group_state", Text, 4),
                Field("group_type", Text, 5),
            ),
        ),
    ),
)


class ListGroupsRequest(TableRequest, api=LIST_GROUPS):
    """A ListGroups request for all groups of one broker, of every type and state."""

    def __init__(self) -> None:
        super().__init__({"states_filter": [], "types_filter": []})


_ASSIGNMENT: Final = ArrayOf(
    Field("topic_id", Uuid), Field("topic_name", Text), Field("partitions", ArrayOf(Int32))
)

CONSUMER_GROUP_DESCRIBE: Final = Api(
    name="ConsumerGroupDescribe",
    key=69,
    versions=range(2),
    flexible_since=0,
    request=(
        Field("group_ids", ArrayOf(Text)),
        Field("include_authorized_operations", Int8),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field(
            "groups",
            ArrayOf(
                Field("error_code", Int16),
                Field("error_message", Text),
                Field("group_id", Text),
                Field("group_state", Text),
                Field("group_epoch", Int32),
                Field("assignment_epoch", Int32),
                Field("assignor_name", Text),
                Field(
                    "members",
                    ArrayOf(
                        Field("member_id", Text),
                        Field("instance_id", Text),
                        Field("rack_id", Text),
                        Field("member_epoch", Int32),
                        Field("client_id", Text),
                        Field("client_host", Text),
                        Field("subscribed_topic_names", ArrayOf(Text)),
                        Field("subscribed_topic_regex", Text),
                        Field("assignment", Row(Field("topic_partitions", _ASSIGNMENT))),
                        Field("target_assignment", Row(Field("topic_partitions", _ASSIGNMENT))),
                        Field("member_type", Int8, 1),
                    ),
                ),
                Field("authorized_operations", Int32),
            ),
        ),
    ),
)


class ConsumerGroupDescribeRequest(TableRequest, api=CONSUMER_GROUP_DESCRIBE):
    """A ConsumerGroupDescribe request for the state and the members of one KIP-848 group."""

    def __init__(self, group_id: str) -> None:
        super().__init__({"group_ids": [group_id], "include_authorized_operations": 0})


DELETE_GROUPS: Final = Api(
    name="DeleteGroups",
    key=42,
    versions=range(3),
    flexible_since=2,
    request=(Field("groups_names", ArrayOf(Text)),),
    response=(
        Field("throttle_time_ms", Int32),
        Field("results", ArrayOf(Field("group_id", Text), Field("error_code", Int16))),
    ),
)


class DeleteGroupsRequest(TableRequest, api=DELETE_GROUPS):
    """A DeleteGroups request for one group and its offsets."""

    def __init__(self, group_id: str) -> None:
        super().__init__({"groups_names": [group_id]})


OFFSET_DELETE: Final = Api(
    name="OffsetDelete",
    key=47,
    versions=range(1),
    flexible_since=1,  # no version is flexible
    request=(
        Field("group_id", Text),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text), Field("partitions", ArrayOf(Field("partition_index", Int32)))
            ),
        ),
    ),
    response=(
        Field("error_code", Int16),
        Field("throttle_time_ms", Int32),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field("partitions", ArrayOf(Field("partition", Int32), Field("error_code", Int16))),
            ),
        ),
    ),
)


class OffsetDeleteRequest(TableRequest, api=OFFSET_DELETE):
    """An OffsetDelete request for committed offsets of one group."""

    def __init__(self, group_id: str, topics: Mapping[str, Sequence[int]]) -> None:
        rows = [
            {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
            for name, numbers in topics.items()
        ]
        super().__init__({"group_id": group_id, "topics": rows})
