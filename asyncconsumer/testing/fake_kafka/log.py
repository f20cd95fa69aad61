"""The log of one partition: record batches, the epochs that wrote them, and how far it is valid."""

import functools
import struct
from bisect import bisect_right
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, Self

from asyncconsumer.errors import ConfigError
from asyncconsumer.records.checksum import crc32c

UNDEFINED: Final = -1
_HEAD: Final = struct.Struct(">qiibI")
_TAIL: Final = struct.Struct(">hiqqqhii")
_HEAD_AFTER_LENGTH: Final = 9  # epoch, magic, checksum
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


class Told(NamedTuple):
    """What the value of a record says of it: with its epoch, no two records are the same."""

    topic: str
    partition: int
    offset: int
    epoch: int  # of the leader that wrote it
    incarnation: int  # of the topic: 1, and one more each time that it is made anew

    @classmethod
    def of(cls, value: bytes | None) -> Self:
        """Read a value that `FakeCluster.append` wrote."""
        fields = (value or b"").decode().rstrip().split("/")
        if len(fields) != len(cls._fields):
            raise ConfigError(f"{value!r} is not the value of a record that a FakeCluster made")
        return cls(fields[0], *(int(field) for field in fields[1:]))


class Batch(NamedTuple):
    """A record batch as it is sent. Its records are a millisecond apart."""

    base: int
    next: int  # the offset after its last
    epoch: int
    timestamp: int  # of its first record
    data: bytes
    control: bool = False  # a marker: no records for anybody to read


class Writer(NamedTuple):
    """Who writes a batch: what its records tell, but for their offsets."""

    topic: str
    partition: int
    epoch: int
    incarnation: int
    producer: int = -1  # that of a transaction, or none


@functools.lru_cache(maxsize=4096)
def make_batch(writer: Writer, base: int, count: int, timestamp: int, size: int = 0) -> Batch:
    """A batch whose records tell who they are, in values of at least `size` bytes."""
    records = []
    for delta in range(count):
        told = f"{writer.topic}/{writer.partition}/{base + delta}/{writer.epoch}"
        value = f"{told}/{writer.incarnation}".encode().ljust(size)
        body = b"".join(
            (b"\0", _varint(delta), _varint(delta), b"\x01", _varint(len(value)), value, b"\0")
        )
        records.append(_varint(len(body)) + body)
    attributes = _TRANSACTIONAL if writer.producer >= 0 else 0
    return _packed(writer, base, timestamp, attributes, records)


def make_marker(writer: Writer, base: int, timestamp: int, *, commit: bool) -> Batch:
    """The control batch at the end of a transaction."""
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
    tail = _TAIL.pack(attributes, count - 1, timestamp, last, producer, known, known, count)
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
    """A transaction that came to nothing."""

    producer: int
    first: int
    last: int  # the offset of its marker


class Log:
    """What one replica of a partition holds. Offsets from `start` to `high` may be read."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.epochs: list[tuple[int, int]] = []  # each with the offset that it began at
        self.aborted: list[Aborted] = []
        self.start = 0
        self.high = 0  # the high watermark: what is beyond may still be lost
        self.end = 0

    def copy(self) -> "Log":
        """The log as it is now."""
        other = Log()
        other.batches, other.epochs = self.batches[:], self.epochs[:]
        other.aborted = self.aborted[:]
        other.start, other.high, other.end = self.start, self.high, self.end
        return other

    # --- writing ---------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """A leader starts to write; of an epoch that wrote nothing no trace is left."""
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        self.epochs.append((epoch, self.end))

    def add(self, batch: Batch) -> None:
        """Append a batch."""
        self.batches.append(batch)
        self.end = batch.next

    def truncate(self, end: int) -> None:
        """Lose everything from an offset on, before a new epoch; a batch goes as a whole."""
        while self.batches and self.batches[-1].next > end:
            self.end = self.batches.pop().base
        self.start = min(self.start, self.end)
        self.high = min(self.high, self.end)
        self.aborted = [one for one in self.aborted if one.last < self.end]

    def delete_before(self, start: int) -> None:
        """Have the log begin at an offset; a batch that reaches beyond it stays whole."""
        self.start = max(self.start, min(start, self.high))
        self.batches = self.batches[self._index(self.start) :]
        kept = [entry for entry in self.epochs if entry[1] > self.start]
        before = [epoch for epoch, began in self.epochs if began <= self.start]
        self.epochs = [(before[-1], self.start), *kept] if before else kept

    # --- reading ---------------------------------------------------------------------------------

    def has(self, offset: int) -> bool:
        """Whether one may ask for an offset: where the next record will be is one, too."""
        return self.start <= offset <= self.end

    def read(self, offset: int, size: int, *, at_least_one: bool) -> bytes:
        """Batches from the one with `offset` on; the last one is cut off where `size` ends.

        If not even one fits, there is nothing; or, with `at_least_one`, that one.
        """
        found: list[bytes] = []
        for batch in islice(self.batches, self._index(offset), None):
            if batch.base >= self.high:
                break
            if len(batch.data) > size:
                if found:
                    found.append(batch.data[:size])
                elif at_least_one:
                    return batch.data
                break
            found.append(batch.data)
            size -= len(batch.data)
        return found[0] if len(found) == 1 else b"".join(found)

    def aborted_between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Producer and first offset of the aborted transactions that reach into these offsets."""
        return [
            (one.producer, one.first)
            for one in self.aborted
            if one.first < end and one.last >= start
        ]

    def at_time(self, timestamp: int) -> tuple[int, int, int]:
        """Offset, timestamp and epoch of the first record from a time on; -1 if there is none."""
        for batch in self.batches:
            offset = max(batch.base + timestamp - batch.timestamp, batch.base, self.start)
            if offset < batch.next and offset < self.high:
                return offset, batch.timestamp + offset - batch.base, batch.epoch
        return UNDEFINED, UNDEFINED, UNDEFINED

    def newest(self) -> tuple[int, int, int]:
        """Offset, timestamp and epoch of the record with the newest timestamp."""
        if not self.batches:
            return UNDEFINED, UNDEFINED, UNDEFINED
        last = max(self.batches, key=lambda batch: batch.timestamp + batch.next - batch.base)
        return last.next - 1, last.timestamp + last.next - 1 - last.base, last.epoch

    def epoch_at(self, offset: int) -> int:
        """The epoch in which an offset was, or will be, written."""
        return max((epoch for epoch, began in self.epochs if began <= offset), default=UNDEFINED)

    def end_of_epoch(self, wanted: int) -> tuple[int, int]:
        """The last epoch that is not after the wanted one, and where it ended; or -1 twice."""
        if wanted == UNDEFINED or not self.epochs:
            return UNDEFINED, UNDEFINED
        if wanted == self.epochs[-1][0]:
            return wanted, self.end
        later = [began for epoch, began in self.epochs if epoch > wanted]
        if not later:
            return UNDEFINED, UNDEFINED
        return max((epoch for epoch, _ in self.epochs if epoch <= wanted), default=wanted), later[0]

    def _index(self, offset: int) -> int:
        return bisect_right(self.batches, offset, key=attrgetter("next"))
