"""The partitions that a feeder writes, from their assignment until they are revoked."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final

from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import (
    CorruptRecords,
    OffsetUnavailable,
    RecordsDeleted,
    SinkFailed,
    SinkOffsetConflict,
)
from asyncconsumer.events import EventStream, Recreated, Skipped
from asyncconsumer.spark.feeder.batches import Collector, FeedBatch, PartitionFeed, WriteIntent
from asyncconsumer.spark.feeder.sink_caller import SinkCaller
from asyncconsumer.spark.feeder.write_intents import WriteIntents
from asyncconsumer.spark.feeder.writes import WriteQueue
from asyncconsumer.spark.sinks.protocol import Sink
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_LOOKS: Final = 0.05
_OF_THE_TIMEOUT: Final = 0.8  # of the listener timeout, so that a failure can still be reported


class FeedState:
    """The feeds of all assigned partitions. A rebalance listener and a `WriteObserver`.

    A feed is never reused. A partition that is assigned again, or read from another offset, gets a
    new feed. So no record of the old feed can follow those of the new one into the sink.
    """

    def __init__(
        self,
        consumer: Consumer[Any, Any],
        sink: Sink,
        asking: SinkCaller,
        collector: Collector,
        flights: WriteQueue,
        *,
        may_lose: bool,
    ) -> None:
        self.lanes: Final[dict[TopicPartition, PartitionFeed]] = {}
        self.promises: Final = WriteIntents(consumer, needed=not sink.remembers)
        self._consumer = consumer
        self._sink = sink
        self._asking = asking
        self._collector = collector
        self._flights = flights
        self._may_lose = may_lose
        self._heard: EventStream | None = None  # subscribed before reading starts
        self._closed = False
        self._fresh: set[PartitionFeed] = set()  # feeds that started without a recorded offset
        self._bell = asyncio.Event()

    def close(self) -> None:
        """Start no more feeds, whatever the consumer is assigned."""
        self._closed = True

    def hand_back(self) -> None:
        """Seek the consumer back to the first record that was read and not written.

        Its next reader cannot learn that position from a sink that holds nothing yet.
        """
        for one in self.lanes.keys() & self._consumer.assignment:
            if (at := self.lanes[one].unwritten) is not None:
                self._consumer.seek(one, at)

    def lane_of(self, partition: TopicPartition, first: int) -> PartitionFeed:
        """Return the feed of records that begin at offset `first`."""
        lane = self.lanes.get(partition)
        if lane is None:
            raise self._late()
        if lane.position is not None and first < lane.position:
            raise SinkOffsetConflict(str(self._sink), partition, lane.position, first)
        if lane.first is None:
            read = self._consumer.progress().get(partition)
            lane.identify(None if read is None else read.topic_id)
        return lane

    # --- for the consumer ------------------------------------------------------------------------

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Start feeds after the data in the sink, while the rebalance waits."""
        try:
            async with asyncio.timeout(self._seconds):
                await self.take_up(partitions)
        except TimeoutError:  # an idle partition would never report it later
            raise self._late() from None

    async def take_up(self, partitions: Collection[TopicPartition]) -> None:
        """Start feeds after the data in the sink, without a timeout."""
        self._heard = self._heard or self._consumer.events()
        await self._begin(partitions, {})

    @property
    def _seconds(self) -> float:
        """The seconds that a rebalance may wait for this listener."""
        return self._consumer.config.member.listener_timeout_ms / 1000 * _OF_THE_TIMEOUT

    def _late(self) -> SinkFailed:
        reason = "no answer within listener_timeout_ms"
        return SinkFailed(str(self._sink), "tell its offsets", 1, reason)

    async def _begin(
        self, partitions: Collection[TopicPartition], starts: Mapping[TopicPartition, int]
    ) -> None:
        """Start feeds after the recorded offsets.

        A partition without one begins at its offset in `starts`, or at the consumer's position.
        """
        if self._closed or not partitions:
            return
        before = {one: self.lanes.get(one) for one in partitions}
        promised: Mapping[TopicPartition, WriteIntent] = {}
        recorded: Mapping[TopicPartition, int | None]
        if self._sink.remembers:
            recorded = await self._asking.ask("tell its offsets", self._sink.load, partitions)
        else:
            recorded, promised = await self.promises.load(partitions)
        for one in partitions:
            if self.lanes.get(one) is not before[one] or one not in self._consumer.assignment:
                continue  # revoked or restarted meanwhile
            at = recorded.get(one)
            self.lanes[one] = PartitionFeed(one, at, written=at, promise=promised.get(one))
            start = starts.get(one) if at is None else at
            if start is not None:
                self._consumer.seek(one, start)
            if at is None and self._consumer.commits:
                self._fresh.add(self.lanes[one])
                self._bell.set()

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Wait for the writes in flight of these partitions, and drop records not in a write yet.

        The next owner of the partitions reads the dropped records again.
        """
        lanes = self._dropped(partitions)
        try:
            async with asyncio.timeout(self._seconds):
                await self._flights.ended(lanes)
        except TimeoutError:
            _log.warning("%s: a batch is given up, for its partition is taken away", self._sink)
        finally:
            self._flights.give_up(lanes)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Write nothing more of these partitions: another member owns them already."""
        self._flights.give_up(self._dropped(partitions))

    def _dropped(self, partitions: Collection[TopicPartition]) -> list[PartitionFeed]:
        lanes = [lane for one in partitions if (lane := self.lanes.pop(one, None)) is not None]
        for lane in lanes:
            self._collector.drop(lane)
        return lanes

    async def tell_beginnings(self) -> None:
        """Commit where feeds began that started without a recorded offset.

        If nothing is written before the partition moves, its next owner begins there too. Otherwise
        it could begin at the end of the log at that time, and miss records.
        """
        while True:
            await self._bell.wait()
            far = self._consumer.progress()
            self._fresh = {one for one in self._fresh if self.lanes.get(one.partition) is one}
            begun = {
                lane: at
                for lane in self._fresh
                if lane.partition in far and (at := far[lane.partition].begun) is not None
            }
            self._fresh -= begun.keys()
            if not self._fresh:
                self._bell.clear()
            if first := {lane.partition: at for lane, at in begun.items() if not lane.sent}:
                await self.promises.tell(first)
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    async def gaps(self) -> AsyncIterator[PartitionFeed]:
        """Yield each feed whose next records are gone from the log, with its `gap` set.

        Raise `SinkOffsetConflict` for a re-created topic: its records cannot follow the old ones.
        """
        assert self._heard is not None
        async for event in self._heard:
            if not isinstance(event, Skipped | Recreated):
                continue
            lane = self.lanes.get(event.partition)
            if lane is None or lane.position is None:
                continue  # nothing was collected yet: the consumer decides where to begin
            if isinstance(event, Recreated):
                if lane.position > 0:
                    del self.lanes[lane.partition]  # records of the old topic may be written
                    raise SinkOffsetConflict(str(self._sink), lane.partition, lane.position, 0)
                self._consumer.seek_to_beginning(lane.partition)
            elif event.start <= event.stop and lane.gap is None:  # otherwise reading went back
                lane.breaks(event.start)
                yield lane

    async def get_over(self, lane: PartitionFeed) -> bool:
        """Continue after a gap. Return False if no records may be lost.

        The fetched records before the gap are collected first, because the log has them no more.
        """
        while self.lanes.get(lane.partition) is lane:
            if self._is_at_gap(lane):
                return self._goes_on(lane)
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return True  # it was revoked, or has a new feed

    def broken_off(self, error: OffsetUnavailable) -> PartitionFeed | None:
        """Return the feed that cannot continue; None if reading continues after the gap.

        With ``auto_offset_reset="none"`` this error reports a gap, after all records before it.
        """
        lane = self.lanes.get(TopicPartition(error.topic, error.partition))
        if lane is None or lane.position is None or error.offset > error.latest:
            raise error  # no record that was to be written is gone
        lane.breaks(error.offset)
        return None if self._goes_on(lane) else lane

    def _goes_on(self, lane: PartitionFeed) -> bool:
        if self._may_lose:
            _log.warning("%s: records from %d on are gone", lane.partition, lane.gap)
            lane.breaks(None)
            self._consumer.seek_to_beginning(lane.partition)
        return self._may_lose

    def _is_at_gap(self, lane: PartitionFeed) -> bool:
        if lane.in_hand or lane.gap is None or lane.partition not in self._consumer.assignment:
            return False
        at = self._consumer.position_now(lane.partition)
        return at is not None and at >= lane.gap

    def skips(self, error: CorruptRecords) -> bool:
        """Return whether reading continues after corrupt records, and seek past them if so."""
        if self._consumer.config.reading.on_poison != "skip" or error.resume is None:
            return False
        _log.warning("reading on at offset %d: %s", error.resume, error)
        if (place := TopicPartition(error.topic, error.partition)) in self._consumer.assignment:
            self._consumer.seek(place, error.resume)
        return True

    def gone(self, lane: PartitionFeed) -> RecordsDeleted:
        """Return the error for a feed whose next records are gone."""
        recorded = lane.first if lane.written is None else lane.written
        return RecordsDeleted(str(self._sink), lane.partition, recorded or 0)

    # --- for writes ------------------------------------------------------------------------------

    async def may_not_land(self, batch: FeedBatch) -> Collection[TopicPartition]:
        """Declare the batch to the group. Return the partitions for which that was refused."""
        return await self.promises.make(batch)

    async def landed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Commit the written offsets to the group."""
        await self.promises.tell(ends)

    async def turned_away(self, starts: Mapping[PartitionFeed, int]) -> None:
        """Drop what was collected of these feeds, and start new feeds after the data in the sink.

        A partition without data in the sink begins at its offset in `starts`. The cause is another
        writer, a revoked partition, or data that the sink or the group lost.
        """
        names = ", ".join(str(lane.partition) for lane in starts)
        _log.warning("%s does not take what was read of %s: read on there", self._sink, names)
        mine = {
            lane.partition: start
            for lane, start in starts.items()
            if self.lanes.get(lane.partition) is lane
        }
        for one in mine:
            self._collector.drop(self.lanes[one])
        await self._begin(mine.keys(), mine)
