"""The Produce API: record batches as producers write them, with duplicate detection."""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.protocol.produce import PRODUCE
from asyncconsumer.records.decoding import Records
from asyncconsumer.testing.fake_kafka.broker import FakeBroker, Handler, Request
from asyncconsumer.testing.fake_kafka.codes import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    MESSAGE_TOO_LARGE,
    NOT_LEADER_OR_FOLLOWER,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from asyncconsumer.testing.fake_kafka.log import Batch, Log, ProducerState, WrittenBatch
from asyncconsumer.testing.fake_kafka.state import View
from asyncconsumer.testing.fake_kafka.tables import handler
from asyncconsumer.types import TopicPartition

MayWrite = Callable[[int, TopicPartition], bool]
"""Return whether a partition was added to the open transaction of a producer id."""

_HEADER: Final = Struct(">qiibIhiqqqhii")
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
_SEQUENCES: Final = 2**31


class _Refused(Exception):
    """An error that refuses a batch. `code` is the partition's error code in the response."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _ProducedHeader(NamedTuple):
    """The header of a batch in a Produce request."""

    base: int
    length: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_timestamp: int
    max_timestamp: int
    producer: int
    producer_epoch: int
    sequence: int
    records: int

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record."""
        return (self.sequence + self.records - 1) % _SEQUENCES


class FakeProducing:
    """The Produce API of a cluster. A batch larger than `max_message_bytes` is rejected."""

    def __init__(
        self, view: View, may_write: MayWrite, write_batch: Callable[[TopicPartition, Batch], int]
    ) -> None:
        self.max_message_bytes = 1_048_588
        self._view = view
        self._may_write = may_write
        self._write_batch = write_batch

    @property
    def handlers(self) -> dict[int, Handler]:
        """The handlers by API key, for `FakeCluster(handlers=...)`."""
        return {PRODUCE.key: handler(PRODUCE, self._produce)}

    def _produce(self, request: Request, received: dict[str, Any]) -> dict[str, Any]:
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    self._write(request, TopicPartition(topic["name"], row["partition"]), row)
                    for row in topic["partitions"]
                ],
            }
            for topic in received["topics"]
        ]
        return {"throttle_time_ms": 0, "topics": topics}

    def _write(self, request: Request, tp: TopicPartition, row: dict[str, Any]) -> dict[str, Any]:
        offset, start, code = -1, -1, request.code
        try:
            if not code:
                log = self._log(request.broker, tp)
                offset, start = self._append(log, tp, row["records"] or b""), log.start
        except _Refused as refused:
            code = refused.code
        return {
            "partition": tp.partition,
            "error_code": code,
            "base_offset": offset,
            "log_append_time_ms": -1,
            "log_start_offset": start,
            "record_errors": [],
            "error_message": None,
        }

    def _log(self, broker: FakeBroker, tp: TopicPartition) -> Log:
        """Return the log of a partition to which this broker may write.

        Raise `_Refused` if the broker does not lead the partition. Also raise it if the broker is
        stale, because its followers would not confirm a write.
        """
        partition = self._view.find(*tp)
        if partition is None:
            raise _Refused(UNKNOWN_TOPIC_OR_PARTITION)
        if partition.leader != broker.node_id or broker.view is not self._view:
            raise _Refused(NOT_LEADER_OR_FOLLOWER)
        return partition.log

    def _append(self, log: Log, tp: TopicPartition, data: bytes) -> int:
        """Append the batch in `data`, unless it was written before. Return its first offset.

        Raise `_Refused` if the batch is too large, corrupt or out of sequence, or if the partition
        is not in the producer's transaction.
        """
        header, stamps = _parsed(tp, data)
        if len(data) > self.max_message_bytes:
            raise _Refused(MESSAGE_TOO_LARGE)
        if header.producer >= 0 and (written := _checked(log, header)) is not None:
            return written.base
        if header.attributes & _TRANSACTIONAL:
            if not self._may_write(header.producer, tp):
                raise _Refused(INVALID_TXN_STATE)
            log.open.setdefault(header.producer, log.end)
        batch = Batch(0, header.records, 0, header.first_timestamp, data, stamps=stamps)
        base = self._write_batch(tp, batch)
        if header.producer >= 0:
            state = log.producers[header.producer]
            state.add(WrittenBatch(header.sequence, header.last_sequence, base))
        return base


def _parsed(tp: TopicPartition, data: bytes) -> tuple[_ProducedHeader, tuple[int, ...]]:
    """Return the header of the only batch in `data`, and the timestamps of its records.

    Raise `_Refused` if `data` is not exactly one valid batch.
    """
    if len(data) < _HEADER.size:
        raise _Refused(CORRUPT_MESSAGE)
    header = _ProducedHeader(*_HEADER.unpack_from(data))
    try:
        records = list(Records(data, topic=tp.topic, partition=tp.partition))
    except CorruptRecords:
        raise _Refused(CORRUPT_MESSAGE) from None
    complete = len(records) == header.records == header.last_delta + 1
    if not complete or header.magic != _MAGIC or header.length + 12 != len(data):
        raise _Refused(CORRUPT_MESSAGE)
    return header, tuple(record.timestamp for record in records)


def _checked(log: Log, header: _ProducedHeader) -> WrittenBatch | None:
    """Return the written batch that a batch with this header repeats, or None if it is new.

    Raise `_Refused` if the producer epoch or the sequence number is wrong.
    """
    state = log.producers.get(header.producer)
    if state is None or header.producer_epoch > state.epoch:
        if state is not None and header.sequence:
            raise _Refused(OUT_OF_ORDER_SEQUENCE_NUMBER)
        log.producers[header.producer] = ProducerState(header.producer_epoch)
        return None
    if header.producer_epoch < state.epoch:
        raise _Refused(INVALID_PRODUCER_EPOCH)
    if written := state.find(header.sequence, header.last_sequence):
        return written
    if state.written and header.sequence != (state.written[-1].last + 1) % _SEQUENCES:
        raise _Refused(OUT_OF_ORDER_SEQUENCE_NUMBER)
    return None
