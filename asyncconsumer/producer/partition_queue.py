"""The batches of one partition, with the sequence numbers of an idempotent producer."""

import asyncio
from bisect import bisect_left
from collections import deque
from math import inf
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Final

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.config import SendConfig
from asyncconsumer.errors import (
    ClosedError,
    ConsumerError,
    DeliveryTimedOut,
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidRecord,
    OutOfOrderSequence,
    RecordListTooLarge,
    RecordTooLarge,
    UnknownProducerId,
)
from asyncconsumer.producer.batch import ProducerBatch, RecordDelivery
from asyncconsumer.records.batch_encoder import BatchProducer, encode_batch
from asyncconsumer.records.decoding import RecordEncoder, Records
from asyncconsumer.records.record import Headers
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NOT_IDEMPOTENT: Final = BatchProducer()
"""The producer fields of batches that are written without idempotence."""

_MAX_IN_FLIGHT: Final = 5  # batches; brokers remember the sequence numbers of as many
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 1.0
_OF_A_RECORD: Final = (RecordTooLarge, RecordListTooLarge, InvalidRecord)
_OF_THE_SEQUENCE: Final = (OutOfOrderSequence, UnknownProducerId, InvalidProducerEpoch)
_RECORD_OVERHEAD: Final = 16
_by_number: Final = attrgetter("number")


class PartitionQueue:
    """The batches of one partition: open, waiting or in flight.

    The first batch of a producer id is sent alone. Then up to five full batches are in flight. A
    batch that is not full is sent when no other one is in flight, so batches grow while the broker
    is slow. After a failure, batches are sent one by one, with their bytes unchanged, until all of
    them are written.

    If a batch fails for good after it was sent, the next sequence number is unknown. The queue then
    needs a new producer id. The broker cannot recognize repetitions across producer ids. Records
    may therefore be written twice, but none is dropped as a repetition of another.

    In a transaction, such a batch fails the transaction instead. The next transaction begins with
    `restart`.
    """

    def __init__(self, tp: TopicPartition, config: SendConfig, randomness: Random) -> None:
        self.tp: Final = tp
        self._transactional = config.transactional_id is not None
        self.producer: BatchProducer | None = None  # its sequence is that of the next new batch
        self._config = config
        self._randomness = randomness
        self._created = 0  # number of batches created so far
        self._open: ProducerBatch | None = None
        self._waiting: deque[ProducerBatch] = deque()
        self._in_flight: list[ProducerBatch] = []
        self._written_sequence = 0  # the number that the broker expects next
        self._retry_at = -inf
        self._delays: Iterator[float] | None = None
        self._last_error: ConsumerError | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether this queue has a batch that is not in flight."""
        return self._open is not None or bool(self._waiting)

    @property
    def has_open(self) -> bool:
        """Whether there is a batch to which records may be added."""
        return self._open is not None

    @property
    def lacks_id(self) -> bool:
        """Whether this queue needs a producer id now.

        If so, batches wait for the id, and no batch with an earlier id is in flight.
        """
        return self.producer is None and self.is_waiting and not self._in_flight

    @property
    def last_error(self) -> ConsumerError | None:
        """The error of the last attempt to write a batch, or None if that attempt succeeded."""
        return self._last_error

    @property
    def in_flight(self) -> int:
        """The number of batches in flight."""
        return len(self._in_flight)

    def batches(self) -> list[ProducerBatch]:
        """Return all batches that are neither written nor failed."""
        unsent = [*self._waiting] if self._open is None else [*self._waiting, self._open]
        return [*self._in_flight, *unsent]

    def append(
        self,
        record: tuple[bytes | None, bytes | None, Headers],
        timestamp_ms: int,
    ) -> tuple[RecordDelivery, int, bool]:
        """Append a record, given as key, value and headers, to the open batch.

        Return the record's delivery, the record's size in bytes, and whether the sender must check
        this queue now. It must if the batch is new or full.
        """
        key, value, headers = record
        batch, limit = self._open, self._config.max_batch_bytes
        expected = (len(key) if key else 0) + (len(value) if value else 0) + _RECORD_OVERHEAD
        if batch is not None and batch.size + expected > limit:
            self._close_open(batch)
            batch = None
        is_new = batch is None
        if batch is None:
            batch = self._new_batch()
        size = batch.encoder.append(timestamp_ms, key, value, headers)
        self._open = batch  # the first record may have been refused
        grown, batch.size = size - batch.size, size
        delivery = RecordDelivery(batch, batch.encoder.count - 1, timestamp_ms)
        if size >= limit:
            self._close_open(batch)
            return delivery, grown, True
        return delivery, grown, is_new

    def extend(
        self,
        records: "Iterable[tuple[bytes | None, bytes | None, Headers]]",
        timestamp_ms: int,
    ) -> tuple[list[ProducerBatch], int]:
        """Append many records as `append` does.

        Return the batches to which the records were added, and the size of the records in bytes.
        """
        batch, limit = self._open, self._config.max_batch_bytes
        before = 0 if batch is None else batch.size
        batches = [] if batch is None else [batch]
        size = limit if batch is None else batch.size  # as if a full batch came before
        try:
            for key, value, headers in records:
                expected = size + (len(key) if key else 0) + (len(value) if value else 0)
                if batch is None or expected + _RECORD_OVERHEAD > limit:
                    if batch is not None:
                        batch.size = size
                        self._close_open(batch)
                    batch = self._new_batch()
                    batches.append(batch)
                size = batch.encoder.append(timestamp_ms, key, value, headers)
        finally:
            if batch is not None and batch.encoder.count:  # the first record may be refused
                batch.size, self._open = size, batch
        return batches, sum(batch.size for batch in batches) - before

    def _new_batch(self) -> ProducerBatch:
        self._created += 1
        return ProducerBatch(self.tp, self._created, asyncio.get_running_loop().time())

    def take(self, now: float, *, flush: bool) -> ProducerBatch | None:
        """Return the next batch to send at the loop time `now`, or None if none may be sent.

        The batch is encoded and counts as in flight. With `flush`, a batch is sent without waiting
        for more records.
        """
        if self.producer is None or now < self._retry_at:
            return None
        if self._waiting:
            if not self._may_pipeline(self._waiting[0]):
                return None
            batch = self._waiting.popleft()
        else:
            if self._open is None or self._in_flight:
                return None
            if not flush and now < self._linger_end(self._open):
                return None
            batch, self._open = self._open, None
        if not batch.data:
            self._encode(batch, self.producer)
        batch.attempts += 1
        self._in_flight.append(batch)
        return batch

    def due(self, now: float, *, flush: bool) -> float:
        """Return the loop time at which to call `take` and `expire` again.

        Return `inf` if no batch waits to be sent. A response may require an earlier call. With
        `flush`, no batch waits for more records.
        """
        oldest = self._waiting[0] if self._waiting else self._open
        if oldest is None:
            return inf
        expiry = self._expiry(oldest)
        if now < self._retry_at:
            return min(expiry, self._retry_at)
        linger_end = self._linger_end(oldest)
        waits = now < linger_end and not (self._waiting or self._in_flight or flush)
        return min(expiry, linger_end) if waits else expiry

    def written(self, batch: ProducerBatch, base_offset: int, timestamp_ms: int) -> int:
        """Mark a batch as written. Return the bytes that this frees in the send buffer."""
        self._in_flight.remove(batch)
        self._delays, self._last_error = None, None
        if batch.sequence >= 0:
            self._written_sequence = (batch.sequence + batch.encoder.count) % 2**31
        batch.written(base_offset, timestamp_ms)
        return batch.size

    def failed(self, batch: ProducerBatch, error: ConsumerError, now: float) -> int:
        """Handle a failed attempt to write a batch: send it again, split it or fail it.

        Return the bytes that this frees in the send buffer.
        """
        if isinstance(error, DuplicateSequence):
            return self.written(batch, -1, -1)
        self._in_flight.remove(batch)
        if isinstance(error, _OF_A_RECORD) and batch.encoder.count > 1:
            self._split(batch)
            return 0
        if isinstance(error, _OF_THE_SEQUENCE):
            if batch.sequence == self._written_sequence or batch.attempts > _MAX_IN_FLIGHT:
                self._reset()  # the broker has lost the state of this producer
                if self._transactional:
                    batch.failed(error)
                    return batch.size
        elif not error.retriable:
            self._reset()
            batch.failed(error)
            return batch.size
        self._last_error = error
        self._put_back(batch)
        freed = self.drop_withdrawn(batch)
        if self._delays is None:
            self._delays = backoff(_FIRST_WAIT, _LONGEST_WAIT, self._randomness)
        # the first of these errors only mean that an earlier batch is missing
        if not isinstance(error, _OF_THE_SEQUENCE) or batch.attempts > _MAX_IN_FLIGHT:
            self._retry_at = now + next(self._delays)
        return freed

    def drop_withdrawn(self, batch: ProducerBatch) -> int:
        """Fail the withdrawn records of a batch, unless the batch is in flight.

        Return the bytes that this frees in the send buffer. If the batch was sent before, the
        records may have been written.
        """
        if not batch.withdrawn or batch.done or batch in self._in_flight:
            return 0
        if batch is self._open:
            self._close_open(batch)
        self._waiting.remove(batch)
        parts, freed = self._split(batch), 0
        for index in batch.withdrawn:
            self._waiting.remove(parts[index])
            parts[index].failed(ClosedError("the record was withdrawn before it was written"))
            freed += parts[index].size
        return freed

    def restart(self, producer: BatchProducer) -> None:
        """Use another producer id or epoch, with sequence numbers from 0.

        Call this only while the queue is empty.
        """
        self.producer = producer
        self._written_sequence = 0
        self._retry_at, self._delays, self._last_error = -inf, None, None

    def expire(self, now: float) -> int:
        """Fail the batches that exceed `delivery_timeout_ms`. Return the bytes that this frees."""
        freed = 0
        while self._waiting and self._expiry(self._waiting[0]) <= now:
            batch = self._waiting.popleft()
            if batch.attempts:
                self._reset()
            freed += self._time_out(batch)
        if self._open is not None and self._expiry(self._open) <= now:
            batch, self._open = self._open, None
            freed += self._time_out(batch)
        return freed

    def give_up(self, error: ConsumerError) -> int:
        """Fail all batches with `error`. Return the bytes that this frees in the send buffer."""
        batches = self.batches()
        self._in_flight, self._open = [], None
        self._waiting.clear()
        for batch in batches:
            batch.failed(error)
        return sum(batch.size for batch in batches)

    def _time_out(self, batch: ProducerBatch) -> int:
        allowed = self._config.delivery_timeout_ms
        error = DeliveryTimedOut(self.tp, allowed, self._last_error)
        batch.failed(error)
        if self._transactional:
            self._last_error = error
        return batch.size

    def _close_open(self, batch: ProducerBatch) -> None:
        self._waiting.append(batch)
        self._open = None

    def _expiry(self, batch: ProducerBatch) -> float:
        return batch.created_at + self._config.delivery_timeout_ms / 1000

    def _linger_end(self, batch: ProducerBatch) -> float:
        return batch.created_at + self._config.linger_ms / 1000

    def _may_pipeline(self, batch: ProducerBatch) -> bool:
        """Return whether a batch may be sent while others of this partition are in flight."""
        if not self._in_flight:
            return True
        if self.producer == NOT_IDEMPOTENT or batch.attempts or self._in_flight[-1].attempts > 1:
            return False
        if not self._written_sequence:
            return False  # a broker accepts any batch as the first one of a new producer id
        return len(self._in_flight) < _MAX_IN_FLIGHT

    def _encode(self, batch: ProducerBatch, producer: BatchProducer) -> None:
        if producer != NOT_IDEMPOTENT:
            batch.sequence = producer.sequence
            following = (producer.sequence + batch.encoder.count) % 2**31
            self.producer = producer._replace(sequence=following)
        batch.data = self._encoded(batch.encoder, producer)

    def _encoded(self, encoder: RecordEncoder, producer: BatchProducer) -> bytes:
        return encode_batch(
            encoder,
            producer,
            compression=self._config.compression_type,
            transactional=self._transactional,
        )

    def _put_back(self, batch: ProducerBatch) -> None:
        if self.producer is None:
            _forget_sequence(batch)
        self._waiting.insert(bisect_left(self._waiting, batch.number, key=_by_number), batch)

    def _split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Replace a batch by batches of one record each, and return the new batches.

        They are sent one by one, so that only the record that the broker refuses fails. In a
        transaction, the records keep their sequence numbers, because the producer id must not
        change.
        """
        producer = self.producer
        if not batch.data:
            batch.data = self._encoded(batch.encoder, NOT_IDEMPOTENT)
        elif not self._transactional:
            self._reset()
        parts: list[ProducerBatch] = []
        for record in Records(batch.data, topic=self.tp.topic, partition=self.tp.partition):
            part = ProducerBatch(self.tp, batch.number, batch.created_at)
            part.size = part.encoder.append(
                record.timestamp, record.key, record.value, record.headers
            )
            part.attempts = batch.attempts
            if self._transactional and producer is not None:
                part.sequence = (batch.sequence + len(parts)) % 2**31
                part.data = self._encoded(part.encoder, producer._replace(sequence=part.sequence))
            parts.append(part)
        parts[0].size += batch.size - sum(part.size for part in parts)
        position = bisect_left(self._waiting, batch.number, key=_by_number)
        for part in reversed(parts):
            self._waiting.insert(position, part)
        batch.become(parts)
        return parts

    def _reset(self) -> None:
        """Require a new producer id, because the next sequence number is unknown."""
        self.producer = None
        self._written_sequence = 0
        for batch in self._waiting:
            _forget_sequence(batch)


def _forget_sequence(batch: ProducerBatch) -> None:
    batch.sequence, batch.data = -1, b""
