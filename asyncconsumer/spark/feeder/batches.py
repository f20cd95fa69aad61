"""Micro-batches of a feeder: records of several partitions, limited by number, size and age."""

import hashlib
from base64 import urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("a feeder needs pyarrow: pip install 'asyncconsumer[spark]'") from error

from asyncconsumer.types import TopicPartition

APP: Final = "asyncconsumer"  # the writer's default name
Transform = Callable[[pa.Table], pa.Table]
"""A function that transforms the records of one partition for the sink. It runs in a thread."""


class WriteIntent(NamedTuple):
    """A declaration of the offset at which the next batch of a partition ends.

    The feeder commits the intent, with the topic's id, before it writes the batch.
    """

    end: int
    topic_id: UUID | None


@dataclass(slots=True, eq=False)
class PartitionFeed:
    """The progress of a feeder in one assigned partition.

    The feed ends when the partition is revoked, or when it is read from another offset.
    """

    partition: TopicPartition
    position: int | None  # end of the records in batches; None before the first record
    written: int | None = None  # end of the records in the sink
    intent: WriteIntent | None = None  # declared earlier for the next batch
    topic_id: UUID | None = None  # known from the first record on
    alive: bool = True
    sent: bool = False  # the write of a batch was started
    holding: bool = False  # some records that were read are not in batches yet
    first: int | None = None  # offset of the first record that was read
    gap: int | None = None  # offset of the first deleted record, while reading waits before it

    @property
    def all_written(self) -> bool:
        """Return whether every record that was read is in the sink."""
        complete = not self.holding and self.gap is None
        return self.alive and complete and self.position == self.written

    @property
    def first_unwritten(self) -> int | None:
        """The offset of the first record that was read and is not in the sink, or None."""
        if self.position == self.written and not self.holding:
            return None
        return self.first if self.written is None else self.written

    def identify(self, topic_id: UUID | None) -> None:
        """Set the id of the topic. A topic that is deleted and created again has another id."""
        self.topic_id = topic_id

    def hold(self, first: int) -> None:
        """Note that records were read, from offset `first` on, and are not in a batch yet.

        Until `release` is called, `all_written` is False.
        """
        self.holding = True
        self.first = first if self.first is None else self.first

    def release(self) -> None:
        """Note that every record that was read is now in a batch."""
        self.holding = False

    def end(self) -> None:
        """Mark the feed as ended. None of its unwritten records is written after that."""
        self.alive = False

    def set_gap(self, gap: int | None) -> None:
        """Store the offset of the first record that retention deleted before it was read.

        Pass None when reading continues after the deleted records.
        """
        self.gap = gap

    def mark_written(self, end: int) -> None:
        """Note that the sink has every record before offset `end`."""
        self.written = end


@dataclass(frozen=True, slots=True)
class TableBuilder:
    """A builder of Arrow tables, with the columns to write and an optional transformation."""

    columns: Sequence[str]
    transform: Transform | None = None

    def build(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return one Arrow table of these record batches, with the columns to write."""
        table = pa.Table.from_batches(batches).select(list(self.columns))
        return table if self.transform is None else self.transform(table)


@dataclass(frozen=True)
class BatchPart:
    """The records of one partition in a micro-batch, from offset `start` to before `end`.

    Each part starts where the previous part of the partition ends. The first record may have a
    later offset than `start`, because compaction and transactions leave gaps.
    """

    partition: TopicPartition
    start: int
    end: int
    rows: int
    size: int
    build: Callable[[], pa.Table] = field(repr=False)
    topic_id: UUID | None = None  # brokers before Kafka 2.8 have none

    @property
    def name(self) -> str:
        """The name of the part, which depends only on its partition and offsets."""
        return self.partition.topic + range_name(self.partition, self.start, self.end)

    @cached_property
    def table(self) -> pa.Table:
        """The Arrow table to write.

        The first access builds it, which is slow, so access it in a thread.
        """
        return self.build()

    def joined(self, after: "BatchPart") -> "BatchPart":
        """Return one part with the records of this part and of `after`.

        Raise ValueError unless `after` starts where this part ends.
        """
        if (after.partition, after.start) != (self.partition, self.end):
            raise ValueError(f"The part {after.name} does not start where {self.name} ends.")
        rows, size = self.rows + after.rows, self.size + after.size
        build = partial(_concat, (self, after))
        return BatchPart(self.partition, self.start, after.end, rows, size, build, self.topic_id)


@dataclass(frozen=True)
class FeedBatch:
    """A batch of records that are written to the sink together.

    The records are of one or more partitions. If the property `apart` of the sink is True, they
    are of one partition.
    """

    parts: Mapping[TopicPartition, BatchPart]
    app: str = APP

    @cached_property
    def id(self) -> str:
        """The id of the batch, which depends only on its partitions and offsets."""
        names = [part.name for _, part in sorted(self.parts.items())]
        if len(names) == 1:
            return names[0]
        return f"{len(names)}-{hashlib.sha256('+'.join(names).encode()).hexdigest()[:32]}"

    @property
    def rows(self) -> int:
        """The number of records in the batch."""
        return sum(part.rows for part in self.parts.values())

    @property
    def size(self) -> int:
        """The bytes of the records in memory."""
        return sum(part.size for part in self.parts.values())

    @property
    def txn_app_id(self) -> str:
        """The value for Delta's option ``txnAppId``: one writer name for each partition.

        The name ends with the topic's id, as Kafka's tools print it. Without the id, Delta would
        skip the first batches of a re-created topic, because their versions are lower.
        """
        name, topic_id = app_id(self.app, self._only.partition), self._only.topic_id
        if topic_id is None:
            return name
        return f"{name}:{urlsafe_b64encode(topic_id.bytes).rstrip(b'=').decode()}"

    @property
    def txn_version(self) -> int:
        """The value for Delta's ``txnVersion``: the offset after the partition's last record."""
        return self._only.end

    @property
    def _only(self) -> BatchPart:
        (part,) = self.parts.values()
        return part

    @cached_property
    def table(self) -> pa.Table:
        """The Arrow table to write, with the records of all parts."""
        return _concat(self.parts.values())

    def joined(self, after: "FeedBatch") -> "FeedBatch":
        """Return one batch with the records of this batch and `after`.

        In partitions that both batches have, the part of `after` must start where the part of
        this batch ends.
        """
        joined = {
            tp: self.parts[tp].joined(part) if tp in self.parts else part
            for tp, part in after.parts.items()
        }
        return FeedBatch({**self.parts, **joined}, self.app)

    def without(self, partitions: Collection[TopicPartition]) -> "FeedBatch":
        """Return this batch without the records of the given partitions."""
        if not partitions:
            return self
        parts = {tp: part for tp, part in self.parts.items() if tp not in partitions}
        return FeedBatch(parts, self.app)


def _concat(parts: Iterable[BatchPart]) -> pa.Table:
    return pa.concat_tables([part.table for part in parts])


def range_name(partition: TopicPartition, start: int, end: int) -> str:
    """Return the text of a partition number and an offset range, for names of files and batches."""
    return f"-{partition.partition}-{start:020d}-{end:020d}"


def app_id(app: str, partition: TopicPartition) -> str:
    """Return the application id under which Delta stores the offset of a partition.

    `app` is the feeder's application name.
    """
    return f"{app}:{partition.topic}:{partition.partition}"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of records, bytes and age at which a batch is written."""

    max_records: int
    max_bytes: int
    max_wait: float  # seconds since the first record


@dataclass(slots=True, eq=False)
class OpenBatch:
    """A batch to which records are still added. `deadline` is a time of the loop's clock."""

    deadline: float
    rows: int = 0
    size: int = 0
    closed: bool = False  # its declared end is reached, or the next record is too large
    parts: dict[PartitionFeed, "OpenPart"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class OpenPart:
    """The records of one partition in an open batch."""

    start: int
    topic_id: UUID | None
    rows: int = 0
    size: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, records: pa.RecordBatch, size: int) -> None:
        """Append the batch `records`, of `size` bytes."""
        self.batches.append(records)
        self.rows += records.num_rows
        self.size += size


_ALL: Final = TopicPartition("", -1)


class Collector:
    """A collector of records in open batches, to which records are still added.

    One batch collects the records of all partitions. With `apart` each partition has a batch of
    its own.

    The collector neither waits nor reads a clock, so callers pass the time in seconds.
    """

    def __init__(
        self, limits: BatchLimits, builder: TableBuilder, *, apart: bool, app: str
    ) -> None:
        self._limits = limits
        self._builder = builder
        self._apart = apart
        self._app = app
        self._open: dict[TopicPartition, OpenBatch] = {}

    @property
    def size(self) -> int:
        """The bytes of all open batches."""
        return sum(batch.size for batch in self._open.values())

    @property
    def deadline(self) -> float:
        """The earliest deadline of all open batches, or infinity if none has a deadline."""
        return min((batch.deadline for batch in self._open.values()), default=inf)

    def add(
        self, feed: PartitionFeed, records: pa.RecordBatch, now: float
    ) -> pa.RecordBatch | None:
        """Add `records` to the open batch, as far as they fit. Return the other records, or None.

        If some do not fit, take the batch that `full` returns, and call `add` again for them.

        `records` are the next records of the partition of `feed`. `now` is the time in seconds.
        """
        key = feed.partition if self._apart else _ALL
        batch = self._open.get(key)
        if batch is None:
            deadline = inf if feed.intent else now + self._limits.max_wait
            batch = self._open[key] = OpenBatch(deadline)
        size = records.nbytes  # computed once, because it is slow
        fitting = records.slice(0, self._fitting_rows(batch, feed, records, size))
        if fitting.num_rows:
            size = size if fitting.num_rows == records.num_rows else fitting.nbytes
            self._append(batch, feed, fitting, size)
        if feed.intent is not None and feed.position is not None:
            end = feed.intent.end
            batch.closed = feed.position >= end or fitting.num_rows < records.num_rows
            if batch.closed:  # the log may have lost the last records before `end`
                feed.position, feed.intent = end, None
        rest = records.slice(fitting.num_rows)
        return rest if rest.num_rows else None

    def _fitting_rows(
        self, batch: OpenBatch, feed: PartitionFeed, records: pa.RecordBatch, size: int
    ) -> int:
        if feed.intent is not None:
            offsets, end = records.column("offset"), feed.intent.end
            return bisect_left(range(len(offsets)), end, key=lambda row: offsets[row].as_py())
        rows = max(0, self._limits.max_records - batch.rows)
        room = max(0, self._limits.max_bytes - batch.size)
        if size > room:  # estimated by mean size; decompressed records may be very large
            rows = min(rows, max(room * records.num_rows // size, batch.rows == 0))
            batch.closed = batch.closed or rows == 0
        return rows

    def _append(
        self, batch: OpenBatch, feed: PartitionFeed, records: pa.RecordBatch, size: int
    ) -> None:
        offsets = records.column("offset")
        if feed not in batch.parts:
            first = offsets[0].as_py() if feed.position is None else feed.position
            # a repeated batch keeps the topic id of its intent, and so its `txn_app_id`
            topic_id = feed.topic_id if feed.intent is None else feed.intent.topic_id
            batch.parts[feed] = OpenPart(first, topic_id)
        batch.parts[feed].add(records, size)
        batch.rows += records.num_rows
        batch.size += size
        feed.position = offsets[-1].as_py() + 1

    def full(self) -> OpenBatch | None:
        """Return an open batch that must be written before more records are added, or None.

        A batch is full at its limit of records or bytes. A batch for a `WriteIntent` of an earlier
        run is full at the offset that the intent declares. If all open batches together reach
        `max_bytes`, return the largest one that is not for an intent.
        """
        for batch in self._open.values():
            if batch.closed or (batch.rows >= self._limits.max_records and batch.deadline < inf):
                return batch
        if self.size >= self._limits.max_bytes:
            candidates = [batch for batch in self._open.values() if batch.deadline < inf]
            return max(candidates, key=lambda batch: batch.size, default=None)
        return None

    def due(self, now: float) -> OpenBatch | None:
        """Return an open batch whose deadline has passed, or None."""
        return next((batch for batch in self._open.values() if batch.deadline <= now), None)

    def any(self) -> OpenBatch | None:
        """Return an open batch that may be written now, or None.

        A batch for a `WriteIntent` of an earlier run is not returned, because it must end at the
        offset that the intent declares.
        """
        return next((batch for batch in self._open.values() if batch.deadline < inf), None)

    def is_open(self, batch: OpenBatch) -> bool:
        """Return whether records may still be added to `batch`."""
        return any(batch is other for other in self._open.values())

    def take(self, batch: OpenBatch) -> tuple[FeedBatch, dict[TopicPartition, PartitionFeed]]:
        """Close an open batch. Return the batch to write, and the feed of each partition in it."""
        self._open = {key: other for key, other in self._open.items() if other is not batch}
        parts = {
            feed.partition: BatchPart(
                feed.partition,
                part.start,
                feed.position or 0,  # the end of this part, because it holds the feed's last record
                part.rows,
                part.size,
                partial(self._builder.build, part.batches),
                part.topic_id,
            )
            for feed, part in batch.parts.items()
        }
        return FeedBatch(parts, self._app), {feed.partition: feed for feed in batch.parts}

    def drop(self, feed: PartitionFeed) -> int:
        """Remove the records of a feed's partition from the open batches. Return their number."""
        dropped = 0
        for key, batch in list(self._open.items()):
            if (part := batch.parts.pop(feed, None)) is not None:
                dropped += part.rows
                batch.rows -= part.rows
                batch.size -= part.size
            if not batch.parts:
                del self._open[key]
        return dropped
