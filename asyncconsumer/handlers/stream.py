"""The stream that submits a partition's records to handlers, which process them in any order."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Final

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.consumer.interceptors import Interceptors
from asyncconsumer.errors import CorruptRecords
from asyncconsumer.fetch.refetch import RefetchPolicy
from asyncconsumer.handlers.partition_work import PartitionWork
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.records.decoding import Record, RecordBlock, Records
from asyncconsumer.records.pauses import open_next
from asyncconsumer.streams.idle import IdleTimeout
from asyncconsumer.streams.stream import Fence, Stream
from asyncconsumer.types import TopicPartition

QueueOf = Callable[[str], WorkQueue]
"""A function that returns the work queue of the handler that reads a topic."""

OnConsume = Callable[[Record], Record]
"""A function that returns the record that the interceptors made of a record."""

SkipCorrupt = Callable[[TopicPartition], bool]
"""A function that returns whether to skip corrupt records of a partition."""
Seek = Callable[[TopicPartition, int], None]
"""A function that moves the position of a partition to an offset."""

_MAX_RECORDS: Final = 256  # to submit before the event loop runs other tasks


def on_consume(interceptors: Interceptors, retry_topics: Collection[str]) -> OnConsume | None:
    """Return the function to call for each record that is read, or None without interceptors.

    It returns records of a retry topic unchanged, because interceptors saw them in their source
    topic.
    """
    if not interceptors:
        return None
    see = interceptors.on_consume
    return lambda record: record if record.topic in retry_topics else see(record)


class HandlerStream(Stream):
    """The stream of one partition, whose records `pump` submits to a work queue.

    A chunk's bytes are released from the fetch budget as soon as its records are submitted. The
    work queue counts them from then on.
    """

    def __init__(
        self,
        queue_of: QueueOf,
        on_consume: OnConsume | None,
        channel: Channel,
        fence: Fence | None = None,
        clock: Callable[[], float] | None = None,
        idle: IdleTimeout | None = None,
    ) -> None:
        super().__init__(channel, fence, clock, idle)
        self._queue_of = queue_of
        self._on_consume = on_consume
        self._work: dict[TopicPartition, tuple[WorkQueue, PartitionWork]] = {}

    # --- for the rebalancer ----------------------------------------------------------------------

    def begin(self, partition: TopicPartition, start: int) -> None:
        """Start to read an assigned partition at offset `start`."""
        queue = self._queue_of(partition.topic)
        work = queue.open(partition, start, self._fence)
        self._work[partition] = queue, work
        if partition in self._on_hold:
            queue.hold(work)

    def finished(self) -> dict[TopicPartition, int]:
        """Return the offset to commit for each partition.

        The metadata of each offset lists the processed records after it.
        """
        offsets = {tp: work.ledger.committable() for tp, (_, work) in self._work.items()}
        return {tp: offset for tp, offset in offsets.items() if offset is not None}

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to submit, or None if it is unknown."""
        entry = self._work.get(partition)
        return None if entry is None else entry[1].ledger.position

    def oldest_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time in ms of the oldest record that is not processed, or None without one."""
        entry = self._work.get(partition)
        oldest = None if entry is None else entry[1].ledger.oldest_timestamp
        return super().oldest_timestamp(partition) if oldest is None else oldest

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Start no more handler calls for these partitions until `release`.

        Running calls continue.
        """
        super().hold(partitions)
        for queue, work in self._of(partitions):
            queue.hold(work)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Allow handler calls for these partitions again."""
        super().release(partitions)
        for queue, work in self._of(partitions):
            queue.release(work)

    async def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until no handler call for these partitions is running."""
        for queue, work in self._of(partitions):
            await queue.wait_idle(work)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the records of a partition that is no longer assigned. Cancel its handler calls."""
        super().forget(partition)
        if (entry := self._work.pop(partition, None)) is not None:
            queue, work = entry
            queue.end(work)

    def _of(self, partitions: Collection[TopicPartition]) -> list[tuple[WorkQueue, PartitionWork]]:
        return [self._work[tp] for tp in partitions if tp in self._work]

    # --- reading ---------------------------------------------------------------------------------

    async def pump(self, *, skip_corrupt: SkipCorrupt, seek: Seek) -> None:
        """Submit records to the work queue until the partition is no longer assigned.

        Wait whenever the work queue has no room.
        """
        refetch = RefetchPolicy(self.position, lambda offsets: _seek_all(seek, offsets))
        async for records in self.chunks():
            chunk = self._delivery.chunk
            if chunk is None or chunk.partition not in self._work:
                continue
            if self._went_back(chunk, seek):
                continue
            queue, work = self._work[chunk.partition]
            while await self._opened(records) and await queue.wait_for_room(work):
                try:
                    more = self._submit_some(queue, work, records, chunk.leader_epoch)
                except CorruptRecords as error:
                    if await self._fetches_again(error, chunk, refetch):
                        break
                    if error.resume is None or not skip_corrupt(chunk.partition):
                        raise
                    records.skip_corrupt()
                    continue
                if not more:
                    # unless the partition was revoked meanwhile
                    if self._delivery.chunk is chunk and self._close_chunk(chunk):
                        work.ledger.advance_position(chunk.next_offset, chunk.leader_epoch)
                    break
                await asyncio.sleep(0)  # run other tasks

    async def _fetches_again(
        self, error: CorruptRecords, chunk: Chunk, refetch: RefetchPolicy
    ) -> bool:
        """Fetch corrupt records again, after all records before them are processed.

        Return False if they were already fetched as often as `refetch` allows. Otherwise return
        True, also if the partition was revoked meanwhile.
        """
        queue, work = self._work[chunk.partition]
        # the seek of `refetch` drops records that are not processed
        if not await queue.wait_empty(work) or self._delivery.chunk is not chunk:
            return True
        return refetch.recover(error)

    def _went_back(self, chunk: Chunk, seek: Seek) -> bool:
        """Handle a chunk that begins before the position, because the log was truncated.

        New records follow at the same offsets, so all records in flight are dropped. If a record
        before the chunk is not processed, seek back to that record. Return True after such a seek,
        so that the caller drops the chunk.
        """
        queue, work = self._work[chunk.partition]
        position = work.ledger.position
        if position is None or chunk.offset >= position:
            return False
        if work.ledger.first < chunk.offset:
            seek(chunk.partition, work.ledger.first)
            return True
        queue.end(work)
        self._work[chunk.partition] = (
            queue,
            queue.open(chunk.partition, chunk.offset, self._fence),
        )
        return False

    async def _opened(self, records: Records) -> bool:
        """Wait until the next record is decompressed, and return True.

        A large body is decompressed in a thread. The result allows a call within a condition.
        """
        await open_next(records)
        return True

    def _submit_some(
        self, queue: WorkQueue, work: PartitionWork, records: Records, leader_epoch: int
    ) -> bool:
        """Submit some of the records. Return whether there are more.

        If the partition's last owner may have processed some of the records, submit one record. Its
        leader epoch is then known, although the batches of a chunk may have different ones.
        """
        max_count, max_size = queue.room(work)
        block, is_known = RecordBlock(), work.ledger.knows_finished
        if is_known:
            max_count = 1
        try:
            is_full = block.fill(records, min(max_count, _MAX_RECORDS), max_size)
            return is_full or bool(records.paused)
        finally:  # also if corrupt records follow
            if taken := block.records:
                position = taken[-1].offset + 1
                if is_known:
                    work.ledger.drop_if_truncated(records.leader_epoch)
                if self._on_consume is not None:
                    block = RecordBlock()
                    block.fill(map(self._on_consume, taken), len(taken), inf)
                queue.submit(work, block)
                work.ledger.advance_position(position, leader_epoch)


def _seek_all(seek: Seek, offsets: Mapping[TopicPartition, int]) -> None:
    for partition, offset in offsets.items():
        seek(partition, offset)
