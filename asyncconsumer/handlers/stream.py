"""The stream of a partition that feeds handlers, which process records in any order."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.consumer.interceptors import Interceptors
from asyncconsumer.errors import CorruptRecords
from asyncconsumer.handlers.partition_work import PartitionWork, size_of
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.records.decoding import Record, Records
from asyncconsumer.records.pauses import open_next
from asyncconsumer.streams.idle import IdleTimeout
from asyncconsumer.streams.stream import Fence, Stream
from asyncconsumer.types import TopicPartition

LanesOf = Callable[[str], WorkQueue]
"""Return the work queue of the handler that reads a topic."""

OnConsume = Callable[[Record], Record]
"""Pass a record through the interceptors."""

SkipCorrupt = Callable[[TopicPartition], bool]
"""Return whether to skip corrupt records of a partition."""
Seek = Callable[[TopicPartition, int], None]
"""Move the position of a partition."""

_MOST_AT_ONCE: Final = 256  # records submitted before the event loop runs other tasks


def on_consume(interceptors: Interceptors, retry_topics: Collection[str]) -> OnConsume | None:
    """Return the function applied to each record that is read; None if there are no interceptors.

    Records of a retry topic are left alone, because interceptors saw them in their source topic.
    """
    if not interceptors:
        return None
    see = interceptors.on_consume
    return lambda record: record if record.topic in retry_topics else see(record)


class HandlerStream(Stream):
    """The stream of one partition, whose records `pump` submits to a work queue.

    A chunk is released as soon as its records are submitted, because the work queue counts their
    bytes.
    """

    def __init__(
        self,
        lanes_of: LanesOf,
        on_consume: OnConsume | None,
        channel: Channel,
        fence: Fence | None = None,
        clock: Callable[[], float] | None = None,
        idle: IdleTimeout | None = None,
    ) -> None:
        super().__init__(channel, fence, clock, idle)
        self._lanes_of = lanes_of
        self._on_consume = on_consume
        self._shares: dict[TopicPartition, tuple[WorkQueue, PartitionWork]] = {}

    # --- for the rebalancer ----------------------------------------------------------------------

    def begin(self, partition: TopicPartition, start: int) -> None:
        """Start an assigned partition at offset `start`."""
        lanes = self._lanes_of(partition.topic)
        share = lanes.open(partition, start, self._fence)
        self._shares[partition] = lanes, share
        if partition in self._on_hold:
            lanes.hold(share)

    def finished(self) -> dict[TopicPartition, int]:
        """Return the offset to commit of each partition; metadata lists later processed records."""
        done = {one: share.ledger.committable() for one, (_, share) in self._shares.items()}
        return {one: offset for one, offset in done.items() if offset is not None}

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to submit."""
        found = self._shares.get(partition)
        return None if found is None else found[1].ledger.position

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Start no more items of these partitions; running items continue."""
        super().hold(partitions)
        for lanes, share in self._of(partitions):
            lanes.hold(share)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Resume held partitions."""
        super().release(partitions)
        for lanes, share in self._of(partitions):
            lanes.release(share)

    async def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until no item of these partitions is running."""
        for lanes, share in self._of(partitions):
            await lanes.settled(share)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the waiting items of a partition that is no longer assigned; cancel running ones."""
        super().forget(partition)
        if (found := self._shares.pop(partition, None)) is not None:
            lanes, share = found
            lanes.end(share)

    def _of(self, partitions: Collection[TopicPartition]) -> list[tuple[WorkQueue, PartitionWork]]:
        return [self._shares[one] for one in partitions if one in self._shares]

    # --- reading ---------------------------------------------------------------------------------

    async def pump(self, *, skip_corrupt: SkipCorrupt, seek: Seek) -> None:
        """Submit records as there is room, until the partition is no longer assigned."""
        async for records in self.chunks():
            chunk = self._held
            if chunk is None or chunk.partition not in self._shares:
                continue
            if self._went_back(chunk, seek):
                continue
            lanes, share = self._shares[chunk.partition]
            share.ledger.meet(chunk.leader_epoch)
            while await self._opened(records) and await lanes.room(share):
                try:
                    more = self._take_in(lanes, share, records, chunk.leader_epoch)
                except CorruptRecords as error:
                    if error.resume is None or not skip_corrupt(chunk.partition):
                        if await lanes.emptied(share):  # the records before it come first
                            raise
                        break
                    records.skip_corrupt()
                    continue
                if not more:
                    if self._held is chunk and self._let_go(chunk):  # not revoked meanwhile
                        share.ledger.reach(chunk.next_offset, chunk.leader_epoch)
                    break
                await asyncio.sleep(0)  # run other tasks

    def _went_back(self, chunk: Chunk, seek: Seek) -> bool:
        """Handle a truncated log. Return whether this chunk is dropped after a seek further back.

        After a truncation, other records follow at the same offsets, so all items in flight are
        dropped. If a record before the chunk is not processed either, seek back to that record.
        """
        lanes, share = self._shares[chunk.partition]
        position = share.ledger.position
        if position is None or chunk.offset >= position:
            return False
        if share.ledger.first < chunk.offset:
            seek(chunk.partition, share.ledger.first)
            return True
        lanes.end(share)
        self._shares[chunk.partition] = (
            lanes,
            lanes.open(chunk.partition, chunk.offset, self._fence),
        )
        return False

    async def _opened(self, records: Records) -> bool:
        """Wait until the next record is decompressed, off the event loop if it is large; True."""
        await open_next(records)
        return True

    def _take_in(
        self, lanes: WorkQueue, share: PartitionWork, records: Records, leader_epoch: int
    ) -> bool:
        """Submit some records. Return whether there are more."""
        load = lanes.load
        count = min(_MOST_AT_ONCE, load.max_count - load.count - share.count)
        most = load.max_size - load.size - share.size
        taken: list[Record] = []
        size = 0
        try:
            for record in records:
                taken.append(record)
                size += size_of(record)
                if len(taken) >= count or size >= most:
                    return True
        finally:
            if taken and self._on_consume is not None:
                taken = [self._on_consume(record) for record in taken]
                size = sum(map(size_of, taken))
            if taken:
                lanes.submit(share, taken, size)
                share.ledger.reach(taken[-1].offset + 1, leader_epoch)
        return bool(records.paused)
