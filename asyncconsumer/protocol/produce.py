"""Produce and InitProducerId."""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from asyncconsumer.aiokafka_parts import Int16, Int32, Int64, Response
from asyncconsumer.errors import BrokerError, ConsumerError, MalformedResponse
from asyncconsumer.protocol.schema import Api, ArrayOf, BytesField, Field, TableRequest, Text
from asyncconsumer.types import TopicPartition

_ALL_IN_SYNC: Final = -1  # acks: the response comes when all in-sync replicas have the records

INIT_PRODUCER_ID: Final = Api(
    name="InitProducerId",
    key=22,
    versions=range(5),
    flexible_since=2,
    request=(
        Field("transactional_id", Text),
        Field("transaction_timeout_ms", Int32),
        Field("producer_id", Int64, 3),
        Field("producer_epoch", Int16, 3),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field("producer_id", Int64),
        Field("producer_epoch", Int16),
    ),
)


class InitProducerIdRequest(TableRequest, api=INIT_PRODUCER_ID):
    """An InitProducerId request. Without a transactional id, any broker can respond to it.

    With a transactional id, the coordinator aborts an open transaction and increments the producer
    epoch. If the request contains the known producer id and epoch, the coordinator refuses it if
    another producer has replaced this one.
    """

    def __init__(
        self,
        transactional_id: str | None = None,
        timeout_ms: int = 0,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        super().__init__(
            {
                "transactional_id": transactional_id,
                "transaction_timeout_ms": timeout_ms,
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
            }
        )


PRODUCE: Final = Api(
    name="Produce",
    key=0,
    versions=range(3, 10),
    flexible_since=9,
    request=(
        Field("transactional_id", Text),
        Field("acks", Int16),
        Field("timeout_ms", Int32),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field(
                    "partitions", ArrayOf(Field("partition", Int32), Field("records", BytesField))
                ),
            ),
        ),
    ),
    response=(
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition", Int32),
                        Field("error_code", Int16),
                        Field("base_offset", Int64),
                        Field("log_append_time_ms", Int64),
                        Field("log_start_offset", Int64, 5),
                        Field(
                            "record_errors",
                            ArrayOf(Field("batch_index", Int32), Field("message", Text)),
                            8,
                        ),
                        Field("error_message", Text, 8),
                    ),
                ),
            ),
        ),
        Field("throttle_time_ms", Int32),
    ),
)


class ProduceRequest(TableRequest, api=PRODUCE):
    """A Produce request with one batch for each partition, acknowledged by all in-sync replicas."""

    def __init__(
        self,
        batches: Mapping[TopicPartition, bytes],
        *,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), batch in batches.items():
            topics.setdefault(topic, []).append({"partition": partition, "records": batch})
        super().__init__(
            {
                "transactional_id": transactional_id,
                "acks": _ALL_IN_SYNC,
                "timeout_ms": timeout_ms,
                "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
            }
        )


class Written(NamedTuple):
    """The result of a batch that was written.

    `base_offset` is that of its first record. `timestamp_ms` is the time that the broker set for
    its records, or -1 if it set none.
    """

    base_offset: int
    timestamp_ms: int


def read_produce_response(
    response: Response, batches: Collection[TopicPartition]
) -> dict[TopicPartition, Written | ConsumerError]:
    """Return the offset or the error of each batch in a Produce response.

    Raise MalformedResponse if its partitions are not those in `batches`.
    """
    rows = {
        TopicPartition(topic["name"], row["partition"]): row
        for topic in response.to_object()["topics"]
        for row in topic["partitions"]
    }
    if rows.keys() != set(batches):
        reason = f"rows for {len(rows)} partitions, not for the {len(batches)} of the request"
        raise MalformedResponse("Produce", response.API_VERSION, 0, reason)
    return {tp: _result(tp, row) for tp, row in rows.items()}


def _result(tp: TopicPartition, row: Mapping[str, Any]) -> Written | ConsumerError:
    if code := row["error_code"]:
        return BrokerError.from_code(code, f"a record for {tp}")
    return Written(row["base_offset"], row["log_append_time_ms"])
