"""The log of a partition: record batches, leader epochs and offsets."""

import functools
import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, Self

from asyncconsumer.errors import ConfigError
from asyncconsumer.records.checksum import crc32c

UNDEFINED: Final = -1
_HEAD: Final = struct.Struct(">qiibI")
_TAIL: Final = struct.Struct(">hiqqqhii")
_HEAD_AFTER_LENGTH: Final = 9  # epoch, magic, checksum
_BASE_OFFSET, _LEADER_EPOCH, _LEADER_EPOCH_AT = struct.Struct(">q"), struct.Struct(">i"), 12
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_REMEMBERED: Final = 5  # batches of a producer, in which a repeated one is found


class RecordPayload(NamedTuple):
    """The contents of a test record's value, which are unique to the record.

    They are unique even after records were lost, because they contain the leader epoch.
    """

    topic: str
    partition: int
    offset: int
    epoch: int  # the epoch of the leader that appended the record
    incarnation: int  # how often the topic was created

    @classmethod
    def of(cls, value: bytes | None) -> Self:
        """Parse a value that `FakeCluster.append` wrote."""
        fields = (value or b"").decode().rstrip().split("/")
        if len(fields) != len(cls._fields):
            raise ConfigError(f"{value!r} is not the value of a record that a FakeCluster made")
        return cls(fields[0], *(int(field) for field in fields[1:]))


class Batch(NamedTuple):
    """An encoded record batch. Without `stamps`, its timestamps are one millisecond apart."""

    base: int
    next: int  # the offset after the last record
    epoch: int
    timestamp: int  # the timestamp of the first record
    data: bytes
    control: bool = False  # a control batch without readable records
    stamps: Sequence[int] = ()  # the timestamps of produced records

    @property
    def timestamps(self) -> Sequence[int]:
        """The timestamp of each record."""
        return self.stamps or range(self.timestamp, self.timestamp + self.next - self.base)

    def moved(self, base: int, epoch: int) -> Self:
        """Return the batch with another base offset and leader epoch, as a leader assigns them."""
        data = bytearray(self.data)
        _BASE_OFFSET.pack_into(data, 0, base)
        _LEADER_EPOCH.pack_into(data, _LEADER_EPOCH_AT, epoch)
        count = self.next - self.base
        return self._replace(base=base, next=base + count, epoch=epoch, data=bytes(data))


class Writer(NamedTuple):
    """The fields of a test batch that its records have in common."""

    topic: str
    partition: int
    epoch: int
    incarnation: int
    producer: int = -1  # the producer id of a transaction, or -1
    producer_epoch: int = 0


@functools.lru_cache(maxsize=4096)
def make_batch(writer: Writer, base: int, count: int, timestamp: int, size: int = 0) -> Batch:
    """Return a batch of `count` records with `RecordPayload` values, from offset `base` on.

    The first record has the timestamp `timestamp` in milliseconds, and each later one a millisecond
    more. A value with less than `size` bytes is padded with spaces.
    """
    records = []
    for delta in range(count):
        origin = f"{writer.topic}/{writer.partition}/{base + delta}/{writer.epoch}"
        value = f"{origin}/{writer.incarnation}".encode().ljust(size)
        body = b"".join(
            (b"\0", _varint(delta), _varint(delta), b"\x01", _varint(len(value)), value, b"\0")
        )
        records.append(_varint(len(body)) + body)
    attributes = _TRANSACTIONAL if writer.producer >= 0 else 0
    return _packed(writer, base, timestamp, attributes, records)


def make_marker(writer: Writer, base: int, timestamp: int, *, commit: bool) -> Batch:
    """Return the control batch that ends a transaction, for a commit or an abort."""
    key, value = struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0)
    body = b"\0\0\0" + _varint(len(key)) + key + _varint(len(value)) + value + b"\0"
    record = _varint(len(body)) + body
    return _packed(writer, base, timestamp, _TRANSACTIONAL | _CONTROL, [record])


def _packed(
    writer: Writer, base: int, timestamp: int, attributes: int, records: list[bytes]
) -> Batch:
    count, producer = len(records), writer.producer
    last = timestamp + count - 1
    known = 0 if producer >= 0 else -1
    of_producer = producer, writer.producer_epoch if producer >= 0 else -1
    if attributes & _CONTROL:
        known = -1  # markers have no sequence
    tail = _TAIL.pack(attributes, count - 1, timestamp, last, *of_producer, known, count)
    tail += b"".join(records)
    head = _HEAD.pack(base, len(tail) + _HEAD_AFTER_LENGTH, writer.epoch, 2, crc32c(tail))
    control = bool(attributes & _CONTROL)
    return Batch(base, base + count, writer.epoch, timestamp, head + tail, control)


def _varint(value: int) -> bytes:
    value <<= 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Aborted(NamedTuple):
    """The offsets of an aborted transaction in the log of a partition."""

    producer: int
    first: int
    last: int  # the offset of its control record


class WrittenBatch(NamedTuple):
    """The first and last sequence number of a batch that a producer wrote, and its offset."""

    first: int
    last: int
    base: int


class ProducerState:
    """The last batches of an idempotent producer in a partition."""

    def __init__(self, epoch: int, written: Sequence[WrittenBatch] = ()) -> None:
        self.epoch = epoch
        self.written = list(written)

    def copy(self) -> "ProducerState":
        """Return a copy, which later batches do not change."""
        return ProducerState(self.epoch, self.written)

    def find(self, first: int, last: int) -> WrittenBatch | None:
        """Return the batch with these first and last sequence numbers, or None.

        Only the last few batches of the producer are searched.
        """
        return next((row for row in self.written if (row.first, row.last) == (first, last)), None)

    def add(self, batch: WrittenBatch) -> None:
        """Add a written batch to the last batches."""
        self.written = [*self.written[1 - _REMEMBERED :], batch]


class Log:
    """The log of a replica. Records from offset `start` to before `high` are readable."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.epochs: list[tuple[int, int]] = []  # leader epochs and their start offsets
        self.aborted: list[Aborted] = []
        self.producers: dict[int, ProducerState] = {}
        self.open: dict[int, int] = {}  # first offsets of open transactions, by producer id
        self.start = 0
        self.high = 0  # the high watermark
        self.end = 0

    def copy(self) -> "Log":
        """Return a copy of the log."""
        other = Log()
        other.batches, other.epochs = self.batches[:], self.epochs[:]
        other.aborted, other.open = self.aborted[:], dict(self.open)
        other.producers = {id_: state.copy() for id_, state in self.producers.items()}
        other.start, other.high, other.end = self.start, self.high, self.end
        return other

    @property
    def stable(self) -> int:
        """The last stable offset: the first offset of an open transaction, or `high`."""
        return min(self.high, *self.open.values()) if self.open else self.high

    # --- writing ---------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """Start a leader epoch at the log end. An earlier epoch without records is removed."""
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        self.epochs.append((epoch, self.end))

    def add(self, batch: Batch) -> None:
        """Append a batch."""
        self.batches.append(batch)
        self.end = batch.next

    def truncate(self, end: int) -> None:
        """Remove the records from offset `end` on. Remove a batch whole if it contains `end`."""
        while self.batches and self.batches[-1].next > end:
            self.end = self.batches.pop().base
        self.start = min(self.start, self.end)
        self.high = min(self.high, self.end)
        self.aborted = [transaction for transaction in self.aborted if transaction.last < self.end]
        self.open = {id_: first for id_, first in self.open.items() if first < self.end}
        for state in self.producers.values():
            state.written = [batch for batch in state.written if batch.base < self.end]

    def delete_before(self, start: int) -> None:
        """Set the log start offset. A batch that contains this offset stays whole, as in Kafka."""
        self.start = max(self.start, min(start, self.high))
        self.batches = self.batches[self._index(self.start) :]
        later = [entry for entry in self.epochs if entry[1] > self.start]
        before = [epoch for epoch, began in self.epochs if began <= self.start]
        self.epochs = [(before[-1], self.start), *later] if before else later

    # --- reading ---------------------------------------------------------------------------------

    def has(self, offset: int) -> bool:
        """Return whether an offset may be fetched. This includes the log end offset."""
        return self.start <= offset <= self.end

    def read(self, offset: int, size: int, *, at_least_one: bool, end: int | None = None) -> bytes:
        """Return the batches from `offset` to before `end`, cut off at `size` bytes.

        If the first batch is larger than `size`, return it whole with `at_least_one`, and return
        nothing otherwise.
        """
        batches: list[bytes] = []
        end = self.high if end is None else end
        for batch in islice(self.batches, self._index(offset), None):
            if batch.base >= end:
                break
            if len(batch.data) > size:
                if batches:
                    batches.append(batch.data[:size])
                elif at_least_one:
                    return batch.data
                break
            batches.append(batch.data)
            size -= len(batch.data)
        return batches[0] if len(batches) == 1 else b"".join(batches)

    def aborted_between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the aborted transactions with records from `start` to before `end`.

        Each is a tuple of its producer id and its first offset.
        """
        return [
            (transaction.producer, transaction.first)
            for transaction in self.aborted
            if transaction.first < end and transaction.last >= start
        ]

    def at_time(self, timestamp: int) -> tuple[int, int, int]:
        """Return the offset, timestamp and leader epoch of the first record at or after a time.

        If there is none, return -1 for each.
        """
        for batch in self.batches:
            for offset, moment in enumerate(batch.timestamps, batch.base):
                if moment >= timestamp and self.start <= offset < self.high:
                    return offset, moment, batch.epoch
        return UNDEFINED, UNDEFINED, UNDEFINED

    def newest(self) -> tuple[int, int, int]:
        """Return the offset, timestamp and leader epoch of the record with the largest timestamp.

        If the log is empty, return -1 for each.
        """
        if not self.batches:
            return UNDEFINED, UNDEFINED, UNDEFINED
        last = max(self.batches, key=lambda batch: max(batch.timestamps))
        moment = max(last.timestamps)
        return last.base + last.timestamps.index(moment), moment, last.epoch

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at an offset, or -1."""
        return max((epoch for epoch, began in self.epochs if began <= offset), default=UNDEFINED)

    def end_of_epoch(self, requested: int) -> tuple[int, int]:
        """Return the largest leader epoch that is at most `requested`, and its end offset.

        If there is no such epoch, return -1 for both.
        """
        if requested == UNDEFINED or not self.epochs:
            return UNDEFINED, UNDEFINED
        if requested == self.epochs[-1][0]:
            return requested, self.end
        later = [began for epoch, began in self.epochs if epoch > requested]
        if not later:
            return UNDEFINED, UNDEFINED
        return max(
            (epoch for epoch, _ in self.epochs if epoch <= requested), default=requested
        ), later[0]

    def _index(self, offset: int) -> int:
        return bisect_right(self.batches, offset, key=attrgetter("next"))
