"""A stream that can also be read in batches of records from several partitions."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import ConsumerError, CorruptRecords, DeserializationFailed
from asyncconsumer.streams.idle import IdleTimeout, NothingYet, Until
from asyncconsumer.streams.stream import Fence, Stream
from asyncconsumer.types import Offset, TopicPartition


class HasOffset(Protocol):
    """A record, or a message made from it."""

    @property
    def topic(self) -> str:
        """The topic of the record."""

    @property
    def partition(self) -> int:
        """The partition number of the record."""

    @property
    def offset(self) -> int:
        """The offset of the record."""


def first_offsets(records: Iterable[HasOffset]) -> dict[TopicPartition, Offset]:
    """Return the first offset of each partition in these records."""
    first: dict[TopicPartition, Offset] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), Offset(record.offset))
    return first


def starts(batch: Sequence[HasOffset]) -> list[int]:
    """Return each index in `batch` whose record is of another partition than the record before.

    The index 0 is included.
    """
    return [
        index
        for index, record in enumerate(batch)
        if index == 0
        or (record.partition, record.topic) != (batch[index - 1].partition, batch[index - 1].topic)
    ]


def _partition_of(error: ConsumerError | None) -> tuple[str, int] | None:
    """Return the partition that an error refers to, or None."""
    if isinstance(error, DeserializationFailed):
        record = cast("HasOffset", error.record)
        return record.topic, record.partition
    return (error.topic, error.partition) if isinstance(error, CorruptRecords) else None


class BatchWaits(NamedTuple):
    """The seconds that a batch waits for its first record, and after that for more records."""

    first: float | None  # for the first record; None waits without a limit
    more: float  # for further records


@dataclass(slots=True, eq=False)
class Runs:
    """The indexes at which a batch has a record of another partition than the record before.

    `collected` has the indexes of the batch that is being collected. `delivered` has those of the
    last delivered batch.
    """

    collected: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)


class BatchedStream(Stream):
    """A stream with batches. Asking for the next batch acknowledges the whole previous batch.

    Collecting a batch advances the position in the current chunk. `finished`, which returns the
    offsets to commit, leaves out the records of the current batch.
    """

    def __init__(
        self,
        channel: Channel,
        fence: Fence | None = None,
        clock: Callable[[], float] | None = None,
        idle: IdleTimeout | None = None,
    ) -> None:
        super().__init__(channel, fence, clock, idle)
        self._batch: list[Any] = []  # records or messages collected so far
        self.runs = Runs()
        self._first: dict[TopicPartition, Offset] = {}  # first offsets of the current batch
        self._trouble: ConsumerError | None = None  # the next call of `next_batch` raises it

    async def next_batch(self, limit: int, waits: BatchWaits) -> list[Any]:
        """Return up to `limit` records for one batch.

        Return an empty list at the end of the stream, or if no record came within `waits.first`
        seconds. If the caller is cancelled, the next call returns the records collected so far.

        Records of partitions that this member loses meanwhile are dropped. If this leaves no
        record, another batch is collected, because an empty list would mean the end.
        """
        if not self._batch:
            self.acknowledge()
        ended = False
        while not ended:
            if not self._batch and self._trouble is not None:
                error, self._trouble = self._trouble, None
                raise error
            try:
                ended = await self._collect(limit, waits)
            except NothingYet:
                return []
            if not await self.is_certain():
                return []  # the collected records stay here, unacknowledged
            if self._batch:
                break
        if len(self._batch) <= limit:
            batch, self._batch = self._batch, []
            self.runs = Runs(delivered=self.runs.collected)
        else:  # the call before was cancelled, and had a higher limit
            batch, self._batch = self._batch[:limit], self._batch[limit:]
            self.runs = Runs(collected=starts(self._batch), delivered=starts(batch))
        return batch

    def take_one(self) -> Any | None:  # noqa: ANN401 - a record or message
        """Acknowledge all delivered records, and return the next record of the current chunk.

        Return None if `next_batch` has to be called, because that waits or raises an error.
        """
        if self._batch or self._trouble is not None:
            return None
        self.acknowledge()
        taken: list[Any] = []
        return taken[0] if self._records.take(taken, 1) else None

    def acknowledge(self) -> None:
        """Count all delivered records and batches as processed.

        Records that were taken for a batch and not delivered yet do not count.
        """
        self._first = first_offsets(self._batch) if self._batch else {}
        super().acknowledge()

    @property
    def is_unacknowledged(self) -> bool:
        """Whether a delivered record or batch is not acknowledged yet."""
        return bool(self._first) or super().is_unacknowledged

    async def _collect(self, limit: int, waits: BatchWaits) -> bool:
        """Collect records for a batch. Return whether the stream has ended.

        An error after the first record is raised by the next call of `next_batch`.
        """
        now, idle = asyncio.get_running_loop().time, self._idle
        try:
            if not self._batch:
                if waits.first is not None:
                    self._idle = Until(now() + waits.first)
                await self._fill(1, limit)
            self._idle = Until(now() + waits.more)
            await self._fill(limit, limit)
        except NothingYet:
            if not self._batch and waits.first is not None:
                # without a limit, the collected records were lost: `next_batch` collects again
                raise
        except StopAsyncIteration:
            return True  # the next request ends in the same way
        except ConsumerError as error:
            if not self._batch:
                raise
            self._trouble = error
        finally:
            self._idle = idle
        return False

    async def _fill(self, least: int, limit: int) -> None:
        """Collect records until the batch has at least `least`, but no more than `limit`."""
        while len(self._batch) < least:
            if not self._take(limit - len(self._batch)):
                self._add(await anext(self._records))

    def _take(self, limit: int) -> int:
        """Collect up to `limit` records of the current chunk without awaiting.

        Return their number.
        """
        collected = len(self._batch)
        try:
            return self._records.take(self._batch, limit)
        finally:
            if len(self._batch) > collected:  # a chunk has records of only one partition
                self._note_first(self._batch[collected])
                self.runs.collected.append(collected)

    def _add(self, record: HasOffset) -> None:
        self._note_first(record)
        self.runs.collected.append(len(self._batch))
        self._batch.append(record)

    def _note_first(self, record: HasOffset) -> None:
        partition = TopicPartition(record.topic, record.partition)
        if partition not in self._first:
            self._first[partition] = Offset(record.offset)

    @property
    def collected(self) -> Sequence[HasOffset]:
        """The records that were taken for a batch that is not delivered yet."""
        return self._batch

    # --- overrides that exclude the current batch ------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last delivered record of a partition.

        Return None if no record of it was delivered. Records that are collected for the next batch
        are not delivered yet.
        """
        collected = first_offsets(self._batch).get(partition)
        return super().position(partition) if collected is None else collected

    def finished(self) -> dict[TopicPartition, int]:
        """Return the offset after the last acknowledged record of each partition.

        For a partition in the current batch, this is its first offset in the batch.
        """
        return {**super().finished(), **self._first}

    def _is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        return super()._is_busy_with(partitions) or not self._first.keys().isdisjoint(partitions)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the records, the position and the acknowledged offset of a partition.

        Its acknowledged offset is not committed any more.
        """
        super().forget(partition)
        self._first.pop(partition, None)
        if _partition_of(self._trouble) == partition:
            self._trouble = None  # the records are fetched again, or by another member
        if self._batch:
            self._batch = [
                record
                for record in self._batch
                if (record.topic, record.partition) != tuple(partition)
            ]
            self.runs.collected = starts(self._batch)
