"""Micro-batches: records of several partitions, limited by number, size and age."""

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
    """The end of a batch that was declared before it was written, and its topic's id if known."""

    end: int
    topic_id: UUID | None


@dataclass(slots=True, eq=False)
class PartitionFeed:
    """One partition from its assignment until it is revoked or read from another offset."""

    partition: TopicPartition
    position: int | None  # end of what is in batches; None before the first record
    written: int | None = None  # end of what is in the sink
    promise: WriteIntent | None = None  # declared earlier for the next batch
    topic_id: UUID | None = None  # known from the first record on
    alive: bool = True
    sent: bool = False  # the write of a batch was started
    in_hand: bool = False  # some records that were read are not in batches yet
    first: int | None = None  # offset of the first record that was read
    gap: int | None = None  # records are gone from this offset on, and none may follow yet

    @property
    def settled(self) -> bool:
        """Return whether every record that was read is in the sink."""
        whole = not self.in_hand and self.gap is None
        return self.alive and whole and self.position == self.written

    @property
    def unwritten(self) -> int | None:
        """The offset of the first record that was read and is not in the sink, or None."""
        if self.position == self.written and not self.in_hand:
            return None
        return self.first if self.written is None else self.written

    def identify(self, topic_id: UUID | None) -> None:
        """Set the id of the topic. A re-created topic of the same name has another id."""
        self.topic_id = topic_id

    def hold(self, first: int) -> None:
        """Note that records from offset `first` on were read and are not all in batches yet."""
        self.in_hand = True
        self.first = first if self.first is None else self.first

    def release(self) -> None:
        """Note that all records that were read are in batches."""
        self.in_hand = False

    def end(self) -> None:
        """Mark the feed as ended: nothing more of it is written."""
        self.alive = False

    def breaks(self, gap: int | None) -> None:
        """Set the offset from which records are gone, or None once reading continues after it."""
        self.gap = gap

    def landed(self, end: int) -> None:
        """Note that the sink has every record before `end`."""
        self.written = end


@dataclass(frozen=True, slots=True)
class TableBuilder:
    """The columns to write, and an optional transformation of them."""

    columns: Sequence[str]
    transform: Transform | None = None

    def of(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return the table to write."""
        table = pa.Table.from_batches(batches).select(list(self.columns))
        return table if self.transform is None else self.transform(table)


@dataclass(frozen=True)
class BatchPart:
    """The records of one partition in a batch, from `start` to before `end`.

    Each part starts where the previous part of the partition ends. The first record may have a
    later offset than `start`, because compaction and transactions leave gaps.
    """

    partition: TopicPartition
    start: int
    end: int
    rows: int
    size: int
    make: Callable[[], pa.Table] = field(repr=False)
    topic_id: UUID | None = None  # brokers before Kafka 2.8 have none

    @property
    def name(self) -> str:
        """The name of the part, which depends only on its partition and offsets."""
        return self.partition.topic + range_name(self.partition, self.start, self.end)

    @cached_property
    def table(self) -> pa.Table:
        """The table to write. The first access builds it, so it belongs in a thread."""
        return self.make()

    def joined(self, after: "BatchPart") -> "BatchPart":
        """Return this part and `after`, which starts where this part ends, as one part."""
        if (after.partition, after.start) != (self.partition, self.end):
            raise ValueError(f"{after.name} does not follow {self.name}")
        rows, size = self.rows + after.rows, self.size + after.size
        both = partial(_table_of, (self, after))
        return BatchPart(self.partition, self.start, after.end, rows, size, both, self.topic_id)


@dataclass(frozen=True)
class FeedBatch:
    """Records that are written together. If the sink is `apart`, they are of one partition."""

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
        """The number of records."""
        return sum(part.rows for part in self.parts.values())

    @property
    def size(self) -> int:
        """The bytes of the records in memory."""
        return sum(part.size for part in self.parts.values())

    @property
    def txn_app_id(self) -> str:
        """The value for Delta's option ``txnAppId``: one writer name for each partition.

        The name ends with the topic's id, as Kafka's tools print it. The first batches of a
        re-created topic have lower versions, and Delta would skip them silently.
        """
        name, topic_id = app_id(self.app, self._only.partition), self._only.topic_id
        if topic_id is None:
            return name
        return f"{name}:{urlsafe_b64encode(topic_id.bytes).rstrip(b'=').decode()}"

    @property
    def txn_version(self) -> int:
        """The value for Delta's option ``txnVersion``: the end of the partition's records."""
        return self._only.end

    @property
    def _only(self) -> BatchPart:
        (part,) = self.parts.values()
        return part

    @cached_property
    def table(self) -> pa.Table:
        """The table to write, with the records of all parts."""
        return _table_of(self.parts.values())

    def joined(self, after: "FeedBatch") -> "FeedBatch":
        """Return this batch and `after`, whose parts continue those of this batch, as one batch."""
        both = {
            one: self.parts[one].joined(part) if one in self.parts else part
            for one, part in after.parts.items()
        }
        return FeedBatch({**self.parts, **both}, self.app)

    def without(self, partitions: Collection[TopicPartition]) -> "FeedBatch":
        """Return this batch without the given partitions."""
        if not partitions:
            return self
        return FeedBatch(
            {one: p for one, p in self.parts.items() if one not in partitions}, self.app
        )


def _table_of(parts: Iterable[BatchPart]) -> pa.Table:
    return pa.concat_tables([part.table for part in parts])


def range_name(partition: TopicPartition, start: int, end: int) -> str:
    """Return the part of a range's name that follows the topic."""
    return f"-{partition.partition}-{start:020d}-{end:020d}"


def app_id(app: str, partition: TopicPartition) -> str:
    """Return the application id with which a partition is written to a Delta table."""
    return f"{app}:{partition.topic}:{partition.partition}"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits at which a batch is written."""

    max_records: int
    max_bytes: int
    max_wait: float  # seconds since the first record


@dataclass(slots=True, eq=False)
class OpenBatch:
    """A batch to which records are still added."""

    deadline: float
    rows: int = 0
    size: int = 0
    closed: bool = False  # its declared end is reached, or the next record is too large
    lanes: dict[PartitionFeed, "OpenPart"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class OpenPart:
    """The records of one partition in an open batch."""

    start: int
    topic_id: UUID | None
    rows: int = 0
    size: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, records: pa.RecordBatch, size: int) -> None:
        """Append records of `size` bytes."""
        self.batches.append(records)
        self.rows += records.num_rows
        self.size += size


_ALL: Final = TopicPartition("", -1)


class Collector:
    """The open batches: one for all partitions, or one for each if `apart`.

    The collector neither waits nor reads a clock.
    """

    def __init__(self, limits: BatchLimits, shape: TableBuilder, *, apart: bool, app: str) -> None:
        self._limits = limits
        self._shape = shape
        self._apart = apart
        self._app = app
        self._open: dict[TopicPartition, OpenBatch] = {}

    @property
    def size(self) -> int:
        """The bytes of all open batches."""
        return sum(one.size for one in self._open.values())

    @property
    def deadline(self) -> float:
        """The earliest deadline of an open batch."""
        return min((one.deadline for one in self._open.values()), default=inf)

    def add(
        self, lane: PartitionFeed, records: pa.RecordBatch, now: float
    ) -> pa.RecordBatch | None:
        """Add the records that fit and return the rest, or None. Take `full` batches in between."""
        key = lane.partition if self._apart else _ALL
        one = self._open.get(key)
        if one is None:
            deadline = inf if lane.promise else now + self._limits.max_wait
            one = self._open[key] = OpenBatch(deadline)
        size = records.nbytes  # computed once, because it is slow
        taken = records.slice(0, self._fitting(one, lane, records, size))
        if taken.num_rows:
            size = size if taken.num_rows == records.num_rows else taken.nbytes
            self._put(one, lane, taken, size)
        if lane.promise is not None and lane.position is not None:
            end = lane.promise.end
            one.closed = lane.position >= end or taken.num_rows < records.num_rows
            if one.closed:  # also if its last records are no longer in the log
                lane.position, lane.promise = end, None
        rest = records.slice(taken.num_rows)
        return rest if rest.num_rows else None

    def _fitting(
        self, one: OpenBatch, lane: PartitionFeed, records: pa.RecordBatch, size: int
    ) -> int:
        if lane.promise is not None:
            offsets, end = records.column("offset"), lane.promise.end
            return bisect_left(range(len(offsets)), end, key=lambda at: offsets[at].as_py())
        rows = max(0, self._limits.max_records - one.rows)
        room = max(0, self._limits.max_bytes - one.size)
        if size > room:  # estimated by mean size; decompressed records may be very large
            rows = min(rows, max(room * records.num_rows // size, one.rows == 0))
            one.closed = one.closed or rows == 0
        return rows

    def _put(self, one: OpenBatch, lane: PartitionFeed, records: pa.RecordBatch, size: int) -> None:
        offsets = records.column("offset")
        if lane not in one.lanes:
            first = offsets[0].as_py() if lane.position is None else lane.position
            # a repeated batch keeps the topic id of its intent, and so its `txn_app_id`
            of_whom = lane if lane.promise is None else lane.promise
            one.lanes[lane] = OpenPart(first, of_whom.topic_id)
        one.lanes[lane].add(records, size)
        one.rows += records.num_rows
        one.size += size
        lane.position = offsets[-1].as_py() + 1

    def full(self) -> OpenBatch | None:
        """Return a batch that is due by number or size, or None.

        If only the batches together exceed `max_bytes`, return the largest.
        """
        for one in self._open.values():
            if one.closed or (one.rows >= self._limits.max_records and one.deadline < inf):
                return one
        if self.size >= self._limits.max_bytes:
            timely = [one for one in self._open.values() if one.deadline < inf]
            return max(timely, key=lambda one: one.size, default=None)
        return None

    def due(self, now: float) -> OpenBatch | None:
        """Return a batch whose deadline has passed, or None."""
        return next((one for one in self._open.values() if one.deadline <= now), None)

    def any(self) -> OpenBatch | None:
        """Return any batch that has no declared end, or None."""
        return next((one for one in self._open.values() if one.deadline < inf), None)

    def holds(self, one: OpenBatch) -> bool:
        """Return whether `one` is still open."""
        return any(one is other for other in self._open.values())

    def take(self, one: OpenBatch) -> tuple[FeedBatch, dict[TopicPartition, PartitionFeed]]:
        """Close `one`. Return it as a batch, with the feeds of its parts."""
        self._open = {key: other for key, other in self._open.items() if other is not one}
        parts = {
            lane.partition: BatchPart(
                lane.partition,
                its.start,
                lane.position or 0,  # the end of this part, because it holds the feed's last record
                its.rows,
                its.size,
                partial(self._shape.of, its.batches),
                its.topic_id,
            )
            for lane, its in one.lanes.items()
        }
        return FeedBatch(parts, self._app), {lane.partition: lane for lane in one.lanes}

    def drop(self, lane: PartitionFeed) -> int:
        """Remove the collected records of a feed and return their number."""
        dropped = 0
        for key, one in list(self._open.items()):
            if (its := one.lanes.pop(lane, None)) is not None:
                dropped += its.rows
                one.rows -= its.rows
                one.size -= its.size
            if not one.lanes:
                del self._open[key]
        return dropped
