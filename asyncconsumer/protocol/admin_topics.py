"""Requests for topics and their configs, for elections of leaders, and for ACLs."""

from collections.abc import Mapping, Sequence
from typing import Final

from asyncconsumer.aiokafka_parts import Boolean, Int8, Int16, Int32
from asyncconsumer.protocol.schema import Api, ArrayOf, Field, TableRequest, Text

TOPIC_RESOURCE: Final = 2
"""The resource type of topics in DescribeConfigs."""
_ANY: Final = 1  # matches every resource, operation and permission of an ACL
_CONFIG: Final = (Field("name", Text), Field("value", Text))

CREATE_TOPICS: Final = Api(
    name="CreateTopics",
    key=19,
    versions=range(2, 5),  # responses of newer ones may have a null array
    flexible_since=5,
    request=(
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field("num_partitions", Int32),
                Field("replication_factor", Int16),
                Field(
                    "assignments",
                    ArrayOf(Field("partition", Int32), Field("broker_ids", ArrayOf(Int32))),
                ),
                Field("configs", ArrayOf(*_CONFIG)),
            ),
        ),
        Field("timeout_ms", Int32),
        Field("validate_only", Boolean),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field("error_code", Int16),
                Field("error_message", Text),
            ),
        ),
    ),
)


class CreateTopicsRequest(TableRequest, api=CREATE_TOPICS):
    """A CreateTopics request for one topic.

    A partition count or replication factor of -1 means the broker's default (Kafka 2.4).
    """

    def __init__(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        *,
        timeout_ms: int,
    ) -> None:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        super().__init__(
            {"topics": [topic], "timeout_ms": timeout_ms, "validate_only": False},
            min_version=4 if -1 in (partitions, replication_factor) else 2,
        )


DELETE_TOPICS: Final = Api(
    name="DeleteTopics",
    key=20,
    versions=range(1, 6),  # version 6 has topic ids
    flexible_since=4,
    request=(Field("topic_names", ArrayOf(Text)), Field("timeout_ms", Int32)),
    response=(
        Field("throttle_time_ms", Int32),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text), Field("error_code", Int16), Field("error_message", Text, 5)
            ),
        ),
    ),
)


class DeleteTopicsRequest(TableRequest, api=DELETE_TOPICS):
    """A DeleteTopics request for topics by name."""

    def __init__(self, names: Sequence[str], *, timeout_ms: int) -> None:
        super().__init__({"topic_names": list(names), "timeout_ms": timeout_ms})


CREATE_PARTITIONS: Final = Api(
    name="CreatePartitions",
    key=37,
    versions=range(4),
    flexible_since=2,
    request=(
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field("count", Int32),
                Field("assignments", ArrayOf(Field("broker_ids", ArrayOf(Int32)))),
            ),
        ),
        Field("timeout_ms", Int32),
        Field("validate_only", Boolean),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field(
            "topics",
            ArrayOf(Field("name", Text), Field("error_code", Int16), Field("error_message", Text)),
        ),
    ),
)


class CreatePartitionsRequest(TableRequest, api=CREATE_PARTITIONS):
    """A CreatePartitions request that raises the number of partitions of one topic to `count`."""

    def __init__(self, name: str, count: int, *, timeout_ms: int) -> None:
        topic = {"name": name, "count": count, "assignments": None}
        super().__init__({"topics": [topic], "timeout_ms": timeout_ms, "validate_only": False})


DESCRIBE_CONFIGS: Final = Api(
    name="DescribeConfigs",
    key=32,
    versions=range(1, 5),
    flexible_since=4,
    request=(
        Field(
            "resources",
            ArrayOf(
                Field("resource_type", Int8),
                Field("resource_name", Text),
                Field("configuration_keys", ArrayOf(Text)),
            ),
        ),
        Field("include_synonyms", Boolean),
        Field("include_documentation", Boolean, 3),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field(
            "results",
            ArrayOf(
                Field("error_code", Int16),
                Field("error_message", Text),
                Field("resource_type", Int8),
                Field("resource_name", Text),
                Field(
                    "configs",
                    ArrayOf(
                        *_CONFIG,
                        Field("read_only", Boolean),
                        Field("config_source", Int8),
                        Field("is_sensitive", Boolean),
                        Field(
                            "synonyms",
                            ArrayOf(*_CONFIG, Field("source", Int8)),
                        ),
                        Field("config_type", Int8, 3),
                        Field("documentation", Text, 3),
                    ),
                ),
            ),
        ),
    ),
)


class DescribeConfigsRequest(TableRequest, api=DESCRIBE_CONFIGS):
    """A DescribeConfigs request for all configs of one topic."""

    def __init__(self, topic: str) -> None:
        resource = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": topic,
            "configuration_keys": None,
        }
        super().__init__(
            {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        )


INCREMENTAL_ALTER_CONFIGS: Final = Api(
    name="IncrementalAlterConfigs",
    key=44,
    versions=range(2),
    flexible_since=1,
    request=(
        Field(
            "resources",
            ArrayOf(
                Field("resource_type", Int8),
                Field("resource_name", Text),
                Field(
                    "configs",
                    ArrayOf(
                        Field("name", Text), Field("config_operation", Int8), Field("value", Text)
                    ),
                ),
            ),
        ),
        Field("validate_only", Boolean),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field(
            "responses",
            ArrayOf(
                Field("error_code", Int16),
                Field("error_message", Text),
                Field("resource_type", Int8),
                Field("resource_name", Text),
            ),
        ),
    ),
)
_SET, _DELETE = 0, 1


class IncrementalAlterConfigsRequest(TableRequest, api=INCREMENTAL_ALTER_CONFIGS):
    """An IncrementalAlterConfigs request for some configs of one topic. None restores a default."""

    def __init__(self, topic: str, configs: Mapping[str, str | None]) -> None:
        rows = [
            {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
            for name, value in configs.items()
        ]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": rows}
        super().__init__({"resources": [resource], "validate_only": False})


ELECT_LEADERS: Final = Api(
    name="ElectLeaders",
    key=43,
    versions=range(1, 3),
    flexible_since=2,
    request=(
        Field("election_type", Int8),
        Field(
            "topic_partitions", ArrayOf(Field("topic", Text), Field("partitions", ArrayOf(Int32)))
        ),
        Field("timeout_ms", Int32),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field(
            "results",
            ArrayOf(
                Field("topic", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition", Int32),
                        Field("error_code", Int16),
                        Field("error_message", Text),
                    ),
                ),
            ),
        ),
    ),
)


class ElectPreferredLeadersRequest(TableRequest, api=ELECT_LEADERS):
    """An ElectLeaders request that makes the preferred replica the leader of each partition."""

    def __init__(self, topics: Mapping[str, Sequence[int]], *, timeout_ms: int) -> None:
        rows = [{"topic": name, "partitions": list(numbers)} for name, numbers in topics.items()]
        super().__init__({"election_type": 0, "topic_partitions": rows, "timeout_ms": timeout_ms})


DESCRIBE_ACLS: Final = Api(
    name="DescribeAcls",
    key=29,
    versions=range(1, 4),
    flexible_since=2,
    request=(
        Field("resource_type", Int8),
        Field("resource_name", Text),
        Field("pattern_type", Int8),
        Field("principal", Text),
        Field("host", Text),
        Field("operation", Int8),
        Field("permission_type", Int8),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field("error_message", Text),
        Field(
            "resources",
            ArrayOf(
                Field("resource_type", Int8),
                Field("resource_name", Text),
                Field("pattern_type", Int8),
                Field(
                    "acls",
                    ArrayOf(
                        Field("principal", Text),
                        Field("host", Text),
                        Field("operation", Int8),
                        Field("permission_type", Int8),
                    ),
                ),
            ),
        ),
    ),
)


class DescribeAclsRequest(TableRequest, api=DESCRIBE_ACLS):
    """A DescribeAcls request for all ACLs of the cluster."""

    def __init__(self) -> None:
        super().__init__(
            {
                "resource_type": _ANY,
                "resource_name": None,
                "pattern_type": _ANY,
                "principal": None,
                "host": None,
                "operation": _ANY,
                "permission_type": _ANY,
            }
        )
