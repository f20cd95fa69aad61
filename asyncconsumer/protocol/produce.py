"""The requests Produce and InitProducerId, and the encoder of record batches."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from asyncconsumer.aiokafka_parts import DefaultRecordBatchBuilder, Int16, Int32, Int64
from asyncconsumer.protocol.schema import Api, ArrayOf, BytesField, Field, TableRequest, Text
from asyncconsumer.records.record import Headers

_ALL_IN_SYNC: Final = -1  # acks: the response comes when all in-sync replicas have the records
_MAGIC: Final = 2  # the batch format from Kafka 0.11 on
_NO_LIMIT: Final = 2**31 - 1

INIT_PRODUCER_ID: Final = Api(
    name="InitProducerId",
    key=22,
    versions=range(2),
    flexible_since=2,
    request=(Field("transactional_id", Text), Field("transaction_timeout_ms", Int32)),
    response=(
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field("producer_id", Int64),
        Field("producer_epoch", Int16),
    ),
)


class InitProducerIdRequest(TableRequest, api=INIT_PRODUCER_ID):
    """A request for the id of an idempotent producer, to any broker."""

    def __init__(self) -> None:
        super().__init__({"transactional_id": None, "transaction_timeout_ms": 0})


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
    """A request to write one batch to one partition, acknowledged by all in-sync replicas."""

    def __init__(self, topic: str, partition: int, batch: bytes, *, timeout_ms: int) -> None:
        rows = [{"name": topic, "partitions": [{"partition": partition, "records": batch}]}]
        super().__init__(
            {
                "transactional_id": None,
                "acks": _ALL_IN_SYNC,
                "timeout_ms": timeout_ms,
                "topics": rows,
            }
        )


class BatchProducer(NamedTuple):
    """The producer fields of a batch: id, epoch and sequence number of the first record."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


class BatchRecord(NamedTuple):
    """A record to write in a batch."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def encode_batch(
    records: Iterable[BatchRecord], timestamp_ms: int, producer: BatchProducer
) -> bytes:
    """Return an uncompressed batch; raise ValueError or TypeError for values of bad types."""
    builder = DefaultRecordBatchBuilder(_MAGIC, 0, 0, *producer, _NO_LIMIT)
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, timestamp_ms, key, value, list(headers))
    return bytes(builder.build())
