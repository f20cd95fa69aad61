"""DescribeQuorum, the request for the state of a cluster's KRaft controllers."""

from typing import Final

from asyncconsumer.aiokafka_parts import Int16, Int32, Int64
from asyncconsumer.protocol.schema import Api, ArrayOf, Field, TableRequest, Text

_REPLICA: Final = ArrayOf(
    Field("replica_id", Int32),
    Field("log_end_offset", Int64),
    Field("last_fetch_timestamp", Int64),
    Field("last_caught_up_timestamp", Int64),
)

DESCRIBE_QUORUM: Final = Api(
    name="DescribeQuorum",
    key=55,
    versions=range(1, 2),  # version 0 has no timestamps
    flexible_since=0,
    request=(
        Field(
            "topics",
            ArrayOf(
                Field("topic_name", Text),
                Field("partitions", ArrayOf(Field("partition_index", Int32))),
            ),
        ),
    ),
    response=(
        Field("error_code", Int16),
        Field(
            "topics",
            ArrayOf(
                Field("topic_name", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition_index", Int32),
                        Field("error_code", Int16),
                        Field("leader_id", Int32),
                        Field("leader_epoch", Int32),
                        Field("high_watermark", Int64),
                        Field("current_voters", _REPLICA),
                        Field("observers", _REPLICA),
                    ),
                ),
            ),
        ),
    ),
)


class DescribeQuorumRequest(TableRequest, api=DESCRIBE_QUORUM):
    """A DescribeQuorum request for the state of the controllers. It needs Kafka 3.3 in KRaft mode.

    In the response, the timestamps of the active controller are the current time of its clock.
    """

    def __init__(self) -> None:
        partitions = [{"partition_index": 0}]
        super().__init__(
            {"topics": [{"topic_name": "__cluster_metadata", "partitions": partitions}]}
        )
