"""The requests of idempotent and transactional producers, one by one."""

from typing import Any

from asyncconsumer.config.choices import CompressionType
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.offset_commit import Commit
from asyncconsumer.protocol.produce import PRODUCE, InitProducerIdRequest
from asyncconsumer.protocol.schema import TableRequest
from asyncconsumer.protocol.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)
from asyncconsumer.records.batch_encoder import BatchProducer, encode_batch
from asyncconsumer.records.decoding import RecordEncoder
from asyncconsumer.testing.fake_kafka.groups import FIND_COORDINATOR
from asyncconsumer.types import Address

NO_MEMBER: dict[str, Any] = {"generation": -1, "member_id": "", "group_instance_id": None}


class Produce(TableRequest, api=PRODUCE):
    """A request to write batches."""


class FindCoordinator(TableRequest, api=FIND_COORDINATOR):
    """A request for the coordinator of a group or a transactional id."""


class AddPartitions(TableRequest, api=ADD_PARTITIONS_TO_TXN):
    """A request to add partitions to a transaction."""


class AddOffsets(TableRequest, api=ADD_OFFSETS_TO_TXN):
    """A request to add the offsets of a group to a transaction."""


class CommitOffsets(TableRequest, api=TXN_OFFSET_COMMIT):
    """A request to commit offsets with a transaction."""


class EndTransaction(TableRequest, api=END_TXN):
    """A request to commit or to abort a transaction."""


def batch(
    values: list[bytes],
    producer: BatchProducer,
    *,
    transactional: bool = False,
    compression: CompressionType = "none",
) -> bytes:
    """Return a batch as a producer writes it."""
    encoder = RecordEncoder()
    for value in values:
        encoder.append(1_000, None, value, ())
    return encode_batch(encoder, producer, compression=compression, transactional=transactional)


class RequestSender:
    """Requests of one producer to one broker, which is leader and coordinator."""

    def __init__(self, brokers: BrokerPool, address: Address) -> None:
        self._brokers = brokers
        self._address = address

    async def ask(self, request: TableRequest) -> dict[str, Any]:
        connection = await self._brokers.connection(self._address, Traffic.PRODUCE)
        answer: dict[str, Any] = (await connection.request(request)).to_object()
        return answer

    async def init(self, transactional_id: str | None, timeout_ms: int = 60_000) -> dict[str, Any]:
        return await self.ask(InitProducerIdRequest(transactional_id, timeout_ms))

    async def produce(
        self, topic: str, data: bytes, *, partition: int = 0, transactional_id: str | None = None
    ) -> tuple[int, int]:
        """Return error code and offset."""
        rows = [{"name": topic, "partitions": [{"partition": partition, "records": data}]}]
        values = {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout_ms": 10_000,
            "topics": rows,
        }
        [row] = (await self.ask(Produce(values)))["topics"][0]["partitions"]
        return row["error_code"], row["base_offset"]

    async def add_partitions(
        self, name: str, producer: BatchProducer, topic: str, *numbers: int
    ) -> list[int]:
        """Return the error codes."""
        answer = await self.ask(
            AddPartitions(
                {
                    **producer_fields(name, producer),
                    "topics": [{"name": topic, "partitions": list(numbers)}],
                }
            )
        )
        return [row["error_code"] for row in answer["topics"][0]["partitions"]]

    async def add_offsets(self, name: str, producer: BatchProducer, group: str) -> int:
        answer = await self.ask(AddOffsets({**producer_fields(name, producer), "group_id": group}))
        return int(answer["error_code"])

    async def commit_offsets(
        self, name: str, producer: BatchProducer, group: str, topic: str, offset: int
    ) -> int:
        row = Commit(0, offset)
        answer = await self.ask(
            CommitOffsets(
                {
                    **producer_fields(name, producer),
                    **NO_MEMBER,
                    "group_id": group,
                    "topics": [{"name": topic, "partitions": [row]}],
                }
            )
        )
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    async def end(self, name: str, producer: BatchProducer, *, commit: bool) -> int:
        answer = await self.ask(
            EndTransaction({**producer_fields(name, producer), "committed": commit})
        )
        return int(answer["error_code"])


def producer_fields(name: str, producer: BatchProducer) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
