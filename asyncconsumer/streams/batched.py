"""A stream that can also be read in batches of records from several partitions."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import ConsumerError, CorruptRecords
from asyncconsumer.records import decoding
from asyncconsumer.streams.idle import IdleTimeout, NothingYet, Until
from asyncconsumer.streams.stream import Fence, Stream
from asyncconsumer.types import Offset, TopicPartition


class HasPartition(Protocol):
    """A record, or a message made from it."""

    @property
    def topic(self) -> str:
        """The topic of the record."""

    @property
    def partition(self) -> int:
        """The partition number of the record."""


def first_offsets(records: Iterable[decoding.Record]) -> dict[TopicPartition, Offset]:
    """Return the offset of the first of these records in each partition."""
    first: dict[TopicPartition, Offset] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), Offset(record.offset))
    return first


class BatchWaits(NamedTuple):
    """The seconds that a batch waits for records."""

    first: float | None  # for the first record; None waits without a limit
    more: float  # for further records


class BatchedStream(Stream):
    """A stream with batches. Asking for the next batch acknowledges the previous one as a whole.

    A batch takes its records one by one, and each request acknowledges the record before. This
    class therefore excludes records of the current batch from `finished`.
    """

    def __init__(
        self,
        channel: Channel,
        fence: Fence | None = None,
        clock: Callable[[], float] | None = None,
        idle: IdleTimeout | None = None,
    ) -> None:
        super().__init__(channel, fence, clock, idle)
        self._batch: list[decoding.Record] = []  # records collected so far
        self._first: dict[TopicPartition, Offset] = {}  # of the batch collected or in flight
        self._trouble: ConsumerError | None = None  # to be raised by the next call
        self._kept_back: Callable[[], Iterable[decoding.Record]] = tuple

    async def next_batch(self, most: int, waits: BatchWaits) -> list[decoding.Record]:
        """Return up to `most` records; none at the end, or if none came within `waits.first`.

        If the caller is cancelled, the next batch has the records collected so far. Records of a
        partition that is lost meanwhile are dropped. If none remain, another batch is begun,
        because an empty batch would mean the end.
        """
        if not self._batch:
            self.acknowledge()
        ended = False
        while not ended:
            if not self._batch and self._trouble is not None:
                error, self._trouble = self._trouble, None
                raise error
            try:
                ended = await self._collect(most, waits)
            except NothingYet:
                return []
            if not await self.is_certain():
                return []  # the collected records stay here, unacknowledged
            if self._batch:
                break
        batch, self._batch = self._batch[:most], self._batch[most:]
        return batch

    def acknowledge(self) -> None:
        """Count everything delivered as processed, batches too.

        Records that were taken for a batch and not delivered yet do not count.
        """
        self._first = self._not_handed_out()
        super().acknowledge()

    @property
    def is_unacknowledged(self) -> bool:
        """Whether a delivered record or batch is not acknowledged yet."""
        return bool(self._first) or super().is_unacknowledged

    async def _collect(self, most: int, waits: BatchWaits) -> bool:
        """Collect records; return whether the stream ended.

        An error after the first record is raised by the next call of `next_batch`.
        """
        now, idle = asyncio.get_running_loop().time, self._idle
        try:
            if not self._batch:
                if waits.first is not None:
                    self._idle = Until(now() + waits.first)
                first = await anext(self._records, None)
                if first is None:
                    return True
                self._add(first)
            self._idle = Until(now() + waits.more)
            while len(self._batch) < most:
                self._add(await anext(self._records))
        except NothingYet:
            if not self._batch and waits.first is not None:
                # with no limit, the collected records were lost: `next_batch` begins another
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

    def _add(self, record: decoding.Record) -> None:
        partition = TopicPartition(record.topic, record.partition)
        if partition not in self._first:
            self._first[partition] = Offset(record.offset)
        self._batch.append(record)

    def set_pending_source(self, records: Callable[[], Iterable[decoding.Record]]) -> None:
        """Set the function that returns records that were taken and not delivered yet."""
        self._kept_back = records

    def _not_handed_out(self) -> dict[TopicPartition, Offset]:
        """Return, for each partition, the first offset that was taken and not delivered yet."""
        return first_offsets((*self._kept_back(), *self._batch))

    @property
    def collected(self) -> Sequence[decoding.Record]:
        """The records that were taken for a batch that is not delivered yet."""
        return self._batch

    def batch_has(self, record: HasPartition) -> bool:
        """Return whether the record's partition was kept since the batch was collected."""
        return (record.topic, record.partition) in self._first

    # --- overrides that exclude the current batch ------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to deliver, or None if none was delivered.

        Records that are collected or still being prepared are not delivered yet.
        """
        taken = self._not_handed_out().get(partition)
        return super().position(partition) if taken is None else taken

    def finished(self) -> dict[TopicPartition, int]:
        """Return the offset after the last acknowledged record of each partition.

        For a partition in the current batch, this is the first offset of the batch.
        """
        return {**super().finished(), **self._first}

    def _is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        return super()._is_busy_with(partitions) or not self._first.keys().isdisjoint(partitions)

    def forget(self, partition: TopicPartition) -> None:
        """Drop all state of a partition, with its collected records, and commit nothing for it."""
        super().forget(partition)
        self._first.pop(partition, None)
        trouble = self._trouble
        if isinstance(trouble, CorruptRecords) and (trouble.topic, trouble.partition) == partition:
            self._trouble = None  # the records are fetched again, or by another member
        if self._batch:
            left = [one for one in self._batch if (one.topic, one.partition) != tuple(partition)]
            self._batch = left
