"""The idempotent writer of one partition."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from asyncconsumer.errors import (
    BrokerError,
    ClusterAccessDenied,
    ConfigError,
    ConsumerError,
    InvalidRecord,
    RecordListTooLarge,
    RecordTooLarge,
    UnsupportedBroker,
)
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.produce import (
    InitProducerIdRequest,
    ProduceRequest,
    read_produce_response,
)
from asyncconsumer.records.batch_encoder import BatchProducer, encode_batch
from asyncconsumer.records.decoding import RecordEncoder
from asyncconsumer.records.record import Headers
from asyncconsumer.types import TopicPartition

_BATCH_BYTES: Final = 500_000  # about half of the default `max.message.bytes`
_RECORD_OVERHEAD: Final = 100
# The broker's wait for replicas ends, with an error, before the request times out here.
_TIMEOUT_FACTOR: Final = 0.7
_RECORD_ERRORS: Final = (RecordTooLarge, RecordListTooLarge, InvalidRecord)
_NOT_IDEMPOTENT: Final = BatchProducer()


@dataclass(frozen=True, slots=True, eq=False)
class ProducerRecord:
    """A record to write. Without a partition, its key selects one, as in Java's producer.

    To retry a record after a failure, send the same object again.
    """

    topic: str
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Headers = field(default=(), repr=False)
    partition: int | None = None

    @property
    def size(self) -> int:
        """Return the approximate size in a batch, in bytes."""
        size = _RECORD_OVERHEAD + len(self.key or b"") + len(self.value or b"")
        return size + sum(len(name) + len(text or b"") for name, text in self.headers)


Outcome: TypeAlias = int | ConsumerError
"""The offset of a written record, or the error if it may not have been written."""


@dataclass(slots=True, eq=False)
class _ProduceBatch:
    """Records that are written together or not at all. A retry sends the same bytes."""

    records: Sequence[ProducerRecord]
    data: bytes = field(default=b"", repr=False)


class PartitionWriter:
    """The idempotent producer of one partition. One task at a time may `write`.

    A batch without a response is in doubt. A retry sends the same batch with the same producer id
    and sequence, and the broker writes it once. If that is impossible, the writer gets a new
    producer id. Records may then be written twice, but never dropped as duplicates of others.
    """

    def __init__(
        self, tp: TopicPartition, brokers: BrokerPool, cluster: Cluster, now_ms: Callable[[], int]
    ) -> None:
        self._tp = tp
        self._brokers = brokers
        self._cluster = cluster
        self._now_ms = now_ms
        self._producer: BatchProducer | None = None  # `sequence` is that of the next record
        self._in_doubt: _ProduceBatch | None = None

    def may_have_written(self, record: ProducerRecord) -> bool:
        """Return whether `record` may have been written already."""
        return self._in_doubt is not None and record in self._in_doubt.records

    async def write(
        self, records: Sequence[ProducerRecord], outcomes: dict[ProducerRecord, Outcome]
    ) -> None:
        """Write records in order. A record that the broker refuses does not block others."""
        batches = self._batches(records)
        while batches:
            batch = batches.popleft()
            try:
                first = await self._produce(batch)
            except _RECORD_ERRORS as error:
                self._reset()
                if len(batch.records) == 1:
                    outcomes[batch.records[0]] = error
                else:  # retry one by one to find the invalid record
                    batches.extendleft(
                        _ProduceBatch([record]) for record in reversed(batch.records)
                    )
            except ConsumerError as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    self._reset()
                outcomes |= {record: error for each in (batch, *batches) for record in each.records}
                return
            else:
                outcomes |= {record: first + n for n, record in enumerate(batch.records)}

    def _batches(self, records: Sequence[ProducerRecord]) -> deque[_ProduceBatch]:
        """Return the batches to write.

        The batch in doubt is first, if all of its records are still to be written.
        """
        in_doubt = self._in_doubt
        if in_doubt is None:
            return deque(_split(records))
        known = set(in_doubt.records)
        if not known <= set(records):
            self._reset()
            return deque(_split(records))
        return deque([in_doubt, *_split([record for record in records if record not in known])])

    async def _produce(self, batch: _ProduceBatch) -> int:
        """Write a batch and return the offset of its first record."""
        if self._producer is None:
            self._producer = await self._request_producer_id()
        leader = self._cluster.leader(self._tp).broker.address
        connection = await self._brokers.connection(leader, Traffic.PRODUCE)
        if not batch.data:
            batch.data = self._encode(batch, self._producer)
        timeout_ms = int(self._brokers.config.request_timeout_ms * _TIMEOUT_FACTOR)
        self._in_doubt = batch
        response = await connection.request(
            ProduceRequest({self._tp: batch.data}, timeout_ms=timeout_ms)
        )
        result = read_produce_response(response, [self._tp])[self._tp]
        if isinstance(result, ConsumerError):
            raise result
        self._in_doubt = None
        if self._producer is not _NOT_IDEMPOTENT:
            next_sequence = (self._producer.sequence + len(batch.records)) % 2**31
            self._producer = self._producer._replace(sequence=next_sequence)
        return result.base_offset

    async def _request_producer_id(self) -> BatchProducer:
        """Return a producer id from any broker.

        Without one, a record whose response is lost is written twice.
        """
        try:
            response = await self._cluster.ask_any(InitProducerIdRequest())
        except UnsupportedBroker:
            return _NOT_IDEMPOTENT
        row = response.to_object()
        if code := row["error_code"]:
            error = BrokerError.from_code(code, "a producer id")
            # brokers before Kafka 2.8 require the IdempotentWrite permission
            if isinstance(error, ClusterAccessDenied):
                return _NOT_IDEMPOTENT
            raise error
        return BatchProducer(row["producer_id"], row["producer_epoch"], 0)

    def _encode(self, batch: _ProduceBatch, producer: BatchProducer) -> bytes:
        encoder, now_ms = RecordEncoder(), self._now_ms()
        try:
            for record in batch.records:
                encoder.append(now_ms, record.key, record.value, record.headers)
        except (TypeError, ValueError) as error:
            reason = f"a record for {self._tp} cannot be encoded: {type(error).__name__}"
            raise ConfigError(reason) from error
        return encode_batch(encoder, producer)

    def _reset(self) -> None:
        self._producer = self._in_doubt = None


def _split(records: Iterable[ProducerRecord]) -> Iterable[_ProduceBatch]:
    """Yield the records in batches of limited size."""
    batch: list[ProducerRecord] = []
    size = 0
    for record in records:
        if batch and size + record.size > _BATCH_BYTES:
            yield _ProduceBatch(batch)
            batch, size = [], 0
        batch.append(record)
        size += record.size
    if batch:
        yield _ProduceBatch(batch)
