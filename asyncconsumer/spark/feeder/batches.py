"""Micro-batches: records of several partitions, until there are enough of them or it is time."""

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

APP: Final = "asyncconsumer"  # who writes, where nobody says otherwise
Transform = Callable[[pa.Table], pa.Table]
"""Makes of the records of one partition what is to be written, in a thread."""


class WriteIntent(NamedTuple):
    """Where a batch will end, and of which topic it is, if that was told."""

    end: int
    topic_id: UUID | None


@dataclass(slots=True, eq=False)
class PartitionFeed:
    """One partition, from when it is ours until it is not, or is read again from elsewhere."""

    partition: TopicPartition
    position: int | None  # up to where it is in batches; None before the first record of all
    written: int | None = None  # up to where the sink has it
    promise: WriteIntent | None = None  # of another one, who began to write the next batch
    topic_id: UUID | None = None  # of the topic that its records are of, from the first one on
    alive: bool = True
    sent: bool = False  # a batch of it went off
    in_hand: bool = False  # not all that was read of it is in batches yet
    first: int | None = None  # the offset of its first record that we had in hand
    gap: int | None = None  # from there on records are gone, and nothing may follow yet

    @property
    def settled(self) -> bool:
        """Whether all that was read of it is in the sink."""
        whole = not self.in_hand and self.gap is None
        return self.alive and whole and self.position == self.written

    @property
    def unwritten(self) -> int | None:
        """Where to read again what was read and is not in the sink; None if there is nothing."""
        if self.position == self.written and not self.in_hand:
            return None
        return self.first if self.written is None else self.written

    def identify(self, topic_id: UUID | None) -> None:
        """Its records are of that topic; one of the same name has another id."""
        self.topic_id = topic_id

    def hold(self, first: int) -> None:
        """Records of it are here, from that offset on, and go into batches one after another."""
        self.in_hand = True
        self.first = first if self.first is None else self.first

    def release(self) -> None:
        """They all did."""
        self.in_hand = False

    def end(self) -> None:
        """Nothing more of it is to be written."""
        self.alive = False

    def breaks(self, gap: int | None) -> None:
        """From there on records are gone; or that was got over."""
        self.gap = gap

    def landed(self, end: int) -> None:
        """The sink has it up to there."""
        self.written = end


@dataclass(frozen=True, slots=True)
class TableBuilder:
    """Which columns, and what becomes of them."""

    columns: Sequence[str]
    transform: Transform | None = None

    def of(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """The table to write."""
        table = pa.Table.from_batches(batches).select(list(self.columns))
        return table if self.transform is None else self.transform(table)


@dataclass(frozen=True)
class BatchPart:
    """The records of one partition in a batch, from `start` to before `end`.

    The first record may have a later offset than `start`, where compaction or transactions left
    gaps: parts of a partition follow each other without any.
    """

    partition: TopicPartition
    start: int
    end: int
    rows: int
    size: int
    make: Callable[[], pa.Table] = field(repr=False)
    topic_id: UUID | None = None  # not from brokers before Kafka 2.8

    @property
    def name(self) -> str:
        """The same whoever reads these records."""
        return self.partition.topic + range_name(self.partition, self.start, self.end)

    @cached_property
    def table(self) -> pa.Table:
        """What is to be written. Made when it is first asked for: ask in a thread."""
        return self.make()

    def joined(self, after: "BatchPart") -> "BatchPart":
        """It and the one that goes on where it ends."""
        if (after.partition, after.start) != (self.partition, self.end):
            raise ValueError(f"{after.name} does not follow {self.name}")
        rows, size = self.rows + after.rows, self.size + after.size
        both = partial(_table_of, (self, after))
        return BatchPart(self.partition, self.start, after.end, rows, size, both, self.topic_id)


@dataclass(frozen=True)
class FeedBatch:
    """What is written together; where a sink wants it so, always of one partition."""

    parts: Mapping[TopicPartition, BatchPart]
    app: str = APP

    @cached_property
    def id(self) -> str:
        """The same for the same records, whoever reads them."""
        names = [part.name for _, part in sorted(self.parts.items())]
        if len(names) == 1:
            return names[0]
        return f"{len(names)}-{hashlib.sha256('+'.join(names).encode()).hexdigest()[:32]}"

    @property
    def rows(self) -> int:
        """How many records."""
        return sum(part.rows for part in self.parts.values())

    @property
    def size(self) -> int:
        """Their bytes in memory."""
        return sum(part.size for part in self.parts.values())

    @property
    def txn_app_id(self) -> str:
        """For Delta's option ``txnAppId``: who writes, one name for each partition.

        It ends with the topic's id, as Kafka's tools print it: of one that is made anew the first
        batches have lower versions, and Delta would leave them out without a word.
        """
        name, topic_id = app_id(self.app, self._only.partition), self._only.topic_id
        if topic_id is None:
            return name
        return f"{name}:{urlsafe_b64encode(topic_id.bytes).rstrip(b'=').decode()}"

    @property
    def txn_version(self) -> int:
        """For Delta's option ``txnVersion``: grows with each batch of the partition."""
        return self._only.end

    @property
    def _only(self) -> BatchPart:
        (part,) = self.parts.values()
        return part

    @cached_property
    def table(self) -> pa.Table:
        """All of it."""
        return _table_of(self.parts.values())

    def joined(self, after: "FeedBatch") -> "FeedBatch":
        """It and the one that goes on where it ends, as one."""
        both = {
            one: self.parts[one].joined(part) if one in self.parts else part
            for one, part in after.parts.items()
        }
        return FeedBatch({**self.parts, **both}, self.app)

    def without(self, partitions: Collection[TopicPartition]) -> "FeedBatch":
        """It, less those."""
        if not partitions:
            return self
        return FeedBatch(
            {one: p for one, p in self.parts.items() if one not in partitions}, self.app
        )


def _table_of(parts: Iterable[BatchPart]) -> pa.Table:
    return pa.concat_tables([part.table for part in parts])


def range_name(partition: TopicPartition, start: int, end: int) -> str:
    """What follows a topic's name, in the name of records of one partition."""
    return f"-{partition.partition}-{start:020d}-{end:020d}"


def app_id(app: str, partition: TopicPartition) -> str:
    """As whom the batches of a partition are written into a Delta table."""
    return f"{app}:{partition.topic}:{partition.partition}"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is large enough."""

    max_records: int
    max_bytes: int
    max_wait: float  # seconds since its first record


@dataclass(slots=True, eq=False)
class OpenBatch:
    """A batch that is not whole yet."""

    deadline: float
    rows: int = 0
    size: int = 0
    closed: bool = False  # it ends where it was promised to, or what comes next is too much
    lanes: dict[PartitionFeed, "OpenPart"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class OpenPart:
    """What it has of one partition."""

    start: int
    topic_id: UUID | None
    rows: int = 0
    size: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, records: pa.RecordBatch, size: int) -> None:
        """The next ones, and how many bytes they are."""
        self.batches.append(records)
        self.rows += records.num_rows
        self.size += size


_ALL: Final = TopicPartition("", -1)


class Collector:
    """Puts records into batches: one of all partitions, or one of each. No waiting, no clock."""

    def __init__(self, limits: BatchLimits, shape: TableBuilder, *, apart: bool, app: str) -> None:
        self._limits = limits
        self._shape = shape
        self._apart = apart
        self._app = app
        self._open: dict[TopicPartition, OpenBatch] = {}

    @property
    def size(self) -> int:
        """Bytes of all that is being collected."""
        return sum(one.size for one in self._open.values())

    @property
    def deadline(self) -> float:
        """When the next batch has waited long enough."""
        return min((one.deadline for one in self._open.values()), default=inf)

    def add(
        self, lane: PartitionFeed, records: pa.RecordBatch, now: float
    ) -> pa.RecordBatch | None:
        """Take as much as fits, and return the rest, if there is one. Ask for `full` in between."""
        key = lane.partition if self._apart else _ALL
        one = self._open.get(key)
        if one is None:
            deadline = inf if lane.promise else now + self._limits.max_wait
            one = self._open[key] = OpenBatch(deadline)
        size = records.nbytes  # to ask Arrow for that takes a while
        taken = records.slice(0, self._fitting(one, lane, records, size))
        if taken.num_rows:
            size = size if taken.num_rows == records.num_rows else taken.nbytes
            self._put(one, lane, taken, size)
        if lane.promise is not None and lane.position is not None:
            end = lane.promise.end
            one.closed = lane.position >= end or taken.num_rows < records.num_rows
            if one.closed:  # also where its last records are not in the log any more
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
        if size > room:  # as many as are about as large; what was compressed may be very much
            rows = min(rows, max(room * records.num_rows // size, one.rows == 0))
            one.closed = one.closed or rows == 0
        return rows

    def _put(self, one: OpenBatch, lane: PartitionFeed, records: pa.RecordBatch, size: int) -> None:
        offsets = records.column("offset")
        if lane not in one.lanes:
            first = offsets[0].as_py() if lane.position is None else lane.position
            # a batch that is made again has the name that it had
            of_whom = lane if lane.promise is None else lane.promise
            one.lanes[lane] = OpenPart(first, of_whom.topic_id)
        one.lanes[lane].add(records, size)
        one.rows += records.num_rows
        one.size += size
        lane.position = offsets[-1].as_py() + 1

    def full(self) -> OpenBatch | None:
        """One that should go now; the largest, when all together are too much."""
        for one in self._open.values():
            if one.closed or (one.rows >= self._limits.max_records and one.deadline < inf):
                return one
        if self.size >= self._limits.max_bytes:
            timely = [one for one in self._open.values() if one.deadline < inf]
            return max(timely, key=lambda one: one.size, default=None)
        return None

    def due(self, now: float) -> OpenBatch | None:
        """One that waited long enough."""
        return next((one for one in self._open.values() if one.deadline <= now), None)

    def any(self) -> OpenBatch | None:
        """One that could go, at the end."""
        return next((one for one in self._open.values() if one.deadline < inf), None)

    def holds(self, one: OpenBatch) -> bool:
        """Whether it is still being collected."""
        return any(one is other for other in self._open.values())

    def take(self, one: OpenBatch) -> tuple[FeedBatch, dict[TopicPartition, PartitionFeed]]:
        """It as a batch, and whose parts those are. The next record begins another."""
        self._open = {key: other for key, other in self._open.items() if other is not one}
        parts = {
            lane.partition: BatchPart(
                lane.partition,
                its.start,
                lane.position or 0,  # what was added last is in here
                its.rows,
                its.size,
                partial(self._shape.of, its.batches),
                its.topic_id,
            )
            for lane, its in one.lanes.items()
        }
        return FeedBatch(parts, self._app), {lane.partition: lane for lane in one.lanes}

    def drop(self, lane: PartitionFeed) -> int:
        """Forget what is collected of it; how many records."""
        dropped = 0
        for key, one in list(self._open.items()):
            if (its := one.lanes.pop(lane, None)) is not None:
                dropped += its.rows
                one.rows -= its.rows
                one.size -= its.size
            if not one.lanes:
                del self._open[key]
        return dropped
