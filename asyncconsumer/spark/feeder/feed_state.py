"""What a feeder has of a consumer's partitions, from when it is given one until it is taken."""

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
_OF_THE_TIMEOUT: Final = 0.8  # of what a listener has, so that it can still say what happened


class FeedState:
    """Keeps a lane for each partition; told by the consumer's rebalances, and by how flights went.

    A lane is never taken up again. What comes back, or is to be read from elsewhere, gets a new
    one, so nothing of the old one can follow it into the sink.
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
        self._heard: EventStream | None = None  # what happens to the log, from before we read it
        self._closed = False
        self._fresh: set[PartitionFeed] = (
            set()
        )  # those of which neither sink nor group had anything
        self._bell = asyncio.Event()

    def close(self) -> None:
        """Take up nothing more, whatever the consumer is given."""
        self._closed = True

    def hand_back(self) -> None:
        """Have the consumer give what was read and not written to whoever reads it next.

        It is not the sink that tells them where to begin, as long as it holds nothing.
        """
        for one in self.lanes.keys() & self._consumer.assignment:
            if (at := self.lanes[one].unwritten) is not None:
                self._consumer.seek(one, at)

    def lane_of(self, partition: TopicPartition, first: int) -> PartitionFeed:
        """Whose records these are that begin with that offset."""
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
        """Begin with these behind what the sink has of them, while the group waits."""
        try:
            async with asyncio.timeout(self._seconds):
                await self.take_up(partitions)
        except TimeoutError:  # of an idle partition nobody would hear later
            raise self._late() from None

    async def take_up(self, partitions: Collection[TopicPartition]) -> None:
        """The same, however long it takes."""
        self._heard = self._heard or self._consumer.events()
        await self._begin(partitions, {})

    @property
    def _seconds(self) -> float:
        """How long the group may wait for us."""
        return self._consumer.config.member.listener_timeout_ms / 1000 * _OF_THE_TIMEOUT

    def _late(self) -> SinkFailed:
        reason = "no answer within listener_timeout_ms"
        return SinkFailed(str(self._sink), "tell its offsets", 1, reason)

    async def _begin(
        self, partitions: Collection[TopicPartition], starts: Mapping[TopicPartition, int]
    ) -> None:
        """The same; where it has nothing there, or where the consumer itself would."""
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
                continue  # it went, or came anew, meanwhile
            at = recorded.get(one)
            self.lanes[one] = PartitionFeed(one, at, written=at, promise=promised.get(one))
            start = starts.get(one) if at is None else at
            if start is not None:
                self._consumer.seek(one, start)
            if at is None and self._consumer.commits:
                self._fresh.add(self.lanes[one])
                self._bell.set()

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish what is being written of these; what is only read so far is another's."""
        lanes = self._dropped(partitions)
        try:
            async with asyncio.timeout(self._seconds):
                await self._flights.ended(lanes)
        except TimeoutError:
            _log.warning("%s: a batch is given up, for its partition is taken away", self._sink)
        finally:
            self._flights.give_up(lanes)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """They are another's already: write nothing more of them."""
        self._flights.give_up(self._dropped(partitions))

    def _dropped(self, partitions: Collection[TopicPartition]) -> list[PartitionFeed]:
        lanes = [lane for one in partitions if (lane := self.lanes.pop(one, None)) is not None]
        for lane in lanes:
            self._collector.drop(lane)
        return lanes

    async def tell_beginnings(self) -> None:
        """Have the group know where we began, for who comes after us before anything is written.

        It would begin at what is the end of the log by then.
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
        """The lanes of which records are gone that were to be fed, from their `gap` on.

        Of a topic that was made anew nothing can follow what the sink has of the old one.
        """
        assert self._heard is not None
        async for event in self._heard:
            if not isinstance(event, Skipped | Recreated):
                continue
            lane = self.lanes.get(event.partition)
            if lane is None or lane.position is None:
                continue  # where nothing was fed yet it is for the consumer to say where to begin
            if isinstance(event, Recreated):
                if lane.position > 0:
                    del self.lanes[lane.partition]  # what is here of the old one may be written
                    raise SinkOffsetConflict(str(self._sink), lane.partition, lane.position, 0)
                self._consumer.seek_to_beginning(lane.partition)
            elif event.start <= event.stop and lane.gap is None:  # else it brings what we have
                lane.breaks(event.start)
                yield lane

    async def get_over(self, lane: PartitionFeed) -> bool:
        """Go on with what is left behind a gap; False if nothing may be lost.

        What was fetched before is nowhere else any more: it goes into batches first.
        """
        while self.lanes.get(lane.partition) is lane:
            if self._is_at_gap(lane):
                return self._goes_on(lane)
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return True  # it is another's, or read anew

    def broken_off(self, error: OffsetUnavailable) -> PartitionFeed | None:
        """The lane that ends there; None if reading goes on with what is left.

        With auto_offset_reset="none" it is this that tells of a gap, when all before it was read.
        """
        lane = self.lanes.get(TopicPartition(error.topic, error.partition))
        if lane is None or lane.position is None or error.offset > error.latest:
            raise error  # nothing that was to be fed is gone
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
        """Whether reading goes on behind damage, for the consumer is told to skip it."""
        if self._consumer.config.reading.on_poison != "skip" or error.resume is None:
            return False
        _log.warning("reading on at offset %d: %s", error.resume, error)
        if (place := TopicPartition(error.topic, error.partition)) in self._consumer.assignment:
            self._consumer.seek(place, error.resume)
        return True

    def gone(self, lane: PartitionFeed) -> RecordsDeleted:
        """What to raise then."""
        recorded = lane.first if lane.written is None else lane.written
        return RecordsDeleted(str(self._sink), lane.partition, recorded or 0)

    # --- for flights -----------------------------------------------------------------------------

    async def may_not_land(self, batch: FeedBatch) -> Collection[TopicPartition]:
        """What cannot be promised is not ours."""
        return await self.promises.make(batch)

    async def landed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Tell the group."""
        await self.promises.tell(ends)

    async def turned_away(self, starts: Mapping[PartitionFeed, int]) -> None:
        """Forget what was read of these; go on behind what is there, or there if that is nothing.

        Somebody else wrote meanwhile; or the sink, or the group, lost what was to be written.
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
