"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit of transactional producers.

Their versions are those before KIP-890's second part. All brokers since Kafka 0.11 serve them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from asyncconsumer.aiokafka_parts import Boolean, Int16, Int32, Int64, Response
from asyncconsumer.errors import BrokerError, MalformedResponse
from asyncconsumer.protocol.offset_commit import Commit
from asyncconsumer.protocol.schema import Api, ArrayOf, Field, TableRequest, Text
from asyncconsumer.types import GroupMetadata, Offset, TopicPartition

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


class TransactionalIdentity(NamedTuple):
    """The fields that identify a producer: transactional id, producer id and producer epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class AddPartitionsRequest(TableRequest, api=ADD_PARTITIONS_TO_TXN):
    """An AddPartitionsToTxn request, sent before records are written to these partitions."""

    def __init__(
        self, producer: TransactionalIdentity, partitions: Iterable[TopicPartition]
    ) -> None:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        rows = [{"name": name, "partitions": numbers} for name, numbers in topics.items()]
        super().__init__({**producer._asdict(), "topics": rows})


class AddOffsetsRequest(TableRequest, api=ADD_OFFSETS_TO_TXN):
    """An AddOffsetsToTxn request, sent before offsets of the group are committed."""

    def __init__(self, producer: TransactionalIdentity, group_id: str) -> None:
        super().__init__({**producer._asdict(), "group_id": group_id})


class EndTransactionRequest(TableRequest, api=END_TXN):
    """An EndTxn request, which commits or aborts a transaction."""

    def __init__(self, producer: TransactionalIdentity, *, commit: bool) -> None:
        super().__init__({**producer._asdict(), "committed": commit})


class CommitInTransactionRequest(TableRequest, api=TXN_OFFSET_COMMIT):
    """A TxnOffsetCommit request, which commits offsets of a group with a transaction (KIP-447).

    If the group metadata names a member, the group coordinator refuses the request if that member
    is fenced. This needs brokers since Kafka 2.5.
    """

    def __init__(
        self,
        producer: TransactionalIdentity,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        topics: dict[str, list[Commit]] = {}
        for (topic, partition), offset in offsets.items():
            full = Offset.of(offset)
            row = Commit(partition, int(offset), full.leader_epoch, full.metadata)
            topics.setdefault(topic, []).append(row)
        values = {
            **producer._asdict(),
            **group._asdict(),
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        super().__init__(values, min_version=3 if group.member_id else 0)


def check_partitions(response: Response, expected: Iterable[TopicPartition]) -> None:
    """Raise the error of a partition in a response, if any partition has an error.

    If several have one, raise an error that is not retriable, if possible. If the partitions are
    not those in `expected`, raise MalformedResponse.
    """
    codes = dict(_partition_codes(response))
    if codes.keys() != set(expected):
        reason = f"{len(codes)} partitions, which are not those of the request"
        raise MalformedResponse(type(response).__name__, response.API_VERSION, 0, reason)
    errors = [BrokerError.from_code(code, str(tp)) for tp, code in codes.items() if code]
    if errors:
        raise min(errors, key=lambda error: error.retriable)


def _partition_codes(response: Response) -> Iterator[tuple[TopicPartition, int]]:
    topics: list[dict[str, Any]] = response.to_object()["topics"]
    for topic in topics:
        for row in topic["partitions"]:
            yield TopicPartition(topic["name"], row["partition"]), row["error_code"]
