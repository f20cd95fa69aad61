"""A partition's stream as handlers read it: finished is what they are done with, in any order."""

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
"""The lanes of the handler that reads a topic."""

OnConsume = Callable[[Record], Record]
"""What interceptors make of a record."""

SkipCorrupt = Callable[[TopicPartition], bool]
"""Whether to go on behind what is damaged."""
Seek = Callable[[TopicPartition, int], None]
"""Has a partition read from another offset."""

_MOST_AT_ONCE: Final = 256  # records that are taken in before others have a turn


def on_consume(interceptors: Interceptors, retry_topics: Collection[str]) -> OnConsume | None:
    """What is done to each record that is taken in; None if that is nothing.

    A record in a retry topic is as interceptors left it before: they do not see it again.
    """
    if not interceptors:
        return None
    see = interceptors.on_consume
    return lambda record: record if record.topic in retry_topics else see(record)


class HandlerStream(Stream):
    """The stream of one partition. The rebalancer asks it what it asks any stream; `pump` reads.

    A chunk is let go of as soon as its records were taken in: their bytes are counted by the lanes.
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
        """It is ours, from there on."""
        lanes = self._lanes_of(partition.topic)
        share = lanes.open(partition, start, self._fence)
        self._shares[partition] = lanes, share
        if partition in self._on_hold:
            lanes.hold(share)

    def finished(self) -> dict[TopicPartition, int]:
        """Of each partition, up to where all is finished; beside it, what is beyond."""
        done = {one: share.ledger.committable() for one, (_, share) in self._shares.items()}
        return {one: offset for one, offset in done.items() if offset is not None}

    def position(self, partition: TopicPartition) -> int | None:
        """The offset from which on nothing was taken in yet."""
        found = self._shares.get(partition)
        return None if found is None else found[1].ledger.position

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Begin nothing more of these; what was begun goes on."""
        super().hold(partitions)
        for lanes, share in self._of(partitions):
            lanes.hold(share)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Go on with them."""
        super().release(partitions)
        for lanes, share in self._of(partitions):
            lanes.release(share)

    async def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until nothing of these is being worked on."""
        for lanes, share in self._of(partitions):
            await lanes.settled(share)

    def forget(self, partition: TopicPartition) -> None:
        """It is somebody else's now: what waits is forgotten, what runs is cancelled."""
        super().forget(partition)
        if (found := self._shares.pop(partition, None)) is not None:
            lanes, share = found
            lanes.end(share)

    def _of(self, partitions: Collection[TopicPartition]) -> list[tuple[WorkQueue, PartitionWork]]:
        return [self._shares[one] for one in partitions if one in self._shares]

    # --- reading ---------------------------------------------------------------------------------

    async def pump(self, *, skip_corrupt: SkipCorrupt, seek: Seek) -> None:
        """Take in what comes, as there is room for it, until the partition is not ours."""
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
                        if await lanes.emptied(share):  # what is before it is never withheld
                            raise
                        break
                    records.skip_corrupt()
                    continue
                if not more:
                    if self._held is chunk and self._let_go(chunk):  # not taken back meanwhile
                        share.ledger.reach(chunk.next_offset, chunk.leader_epoch)
                    break
                await asyncio.sleep(0)  # others have their turn

    def _went_back(self, chunk: Chunk, seek: Seek) -> bool:
        """Whether the log itself was cut back, and is to be read from an even earlier offset.

        Then other records follow: what is worked on may be none of them, and is given up. Where
        something before them is not finished either, it must be read again.
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
        """Wait, off the event loop, for a body that takes long to decompress; True."""
        await open_next(records)
        return True

    def _take_in(
        self, lanes: WorkQueue, share: PartitionWork, records: Records, leader_epoch: int
    ) -> bool:
        """Some records; False when there are no more."""
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
