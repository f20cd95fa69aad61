"""The messages between transactional producers and their coordinators, as tables."""

from typing import Final

from asyncconsumer.aiokafka_parts import Boolean, Int16, Int32, Int64
from asyncconsumer.protocol.schema import Api, ArrayOf, Field, Text

_PRODUCER: Final = (
    Field("transactional_id", Text),
    Field("producer_id", Int64),
    Field("producer_epoch", Int16),
)
_RESULT: Final = (Field("throttle_time_ms", Int32), Field("error_code", Int16))
_PARTITION_RESULTS: Final = ArrayOf(
    Field("name", Text),
    Field("partitions", ArrayOf(Field("partition", Int32), Field("error_code", Int16))),
)

ADD_PARTITIONS_TO_TXN: Final = Api(
    name="AddPartitionsToTxn",
    key=24,
    versions=range(4),  # later versions are for brokers
    flexible_since=3,
    request=(
        *_PRODUCER,
        Field("topics", ArrayOf(Field("name", Text), Field("partitions", ArrayOf(Int32)))),
    ),
    response=(Field("throttle_time_ms", Int32), Field("topics", _PARTITION_RESULTS)),
)

ADD_OFFSETS_TO_TXN: Final = Api(
    name="AddOffsetsToTxn",
    key=25,
    versions=range(4),
    flexible_since=3,
    request=(*_PRODUCER, Field("group_id", Text)),
    response=_RESULT,
)

END_TXN: Final = Api(
    name="EndTxn",
    key=26,
    versions=range(4),
    flexible_since=3,
    request=(*_PRODUCER, Field("committed", Boolean)),
    response=_RESULT,
)

TXN_OFFSET_COMMIT: Final = Api(
    name="TxnOffsetCommit",
    key=28,
    versions=range(4),
    flexible_since=3,
    request=(
        Field("transactional_id", Text),
        Field("group_id", Text),
        Field("producer_id", Int64),
        Field("producer_epoch", Int16),
        Field("generation", Int32, 3),
        Field("member_id", Text, 3),
        Field("group_instance_id", Text, 3),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition", Int32),
                        Field("offset", Int64),
                        Field("leader_epoch", Int32, 2),
                        Field("metadata", Text),
                    ),
                ),
            ),
        ),
    ),
    response=(Field("throttle_time_ms", Int32), Field("topics", _PARTITION_RESULTS)),
)
