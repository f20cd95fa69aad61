"""The partitions that a feeder writes, from their assignment until they are revoked."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final

from asyncconsumer.aio.wait import POLL_SECONDS, wait_until
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
_TIMEOUT_FRACTION: Final = 0.8  # of `listener_timeout_ms`, to report a failure in time


class FeedState:
    """The progress of a feeder in all assigned partitions, with one `PartitionFeed` for each.

    The object is a rebalance listener and a `WriteObserver`.

    A `PartitionFeed`, or feed, is never reused. A partition that is assigned again, or read from
    another offset, gets a new feed. So an old write cannot follow a new one into the sink.
    """

    def __init__(
        self,
        consumer: Consumer[Any, Any],
        sink: Sink,
        caller: SinkCaller,
        collector: Collector,
        writes: WriteQueue,
        *,
        allow_data_loss: bool,
    ) -> None:
        self.feeds: Final[dict[TopicPartition, PartitionFeed]] = {}
        self.intents: Final = WriteIntents(consumer, needed=not sink.remembers)
        self._consumer = consumer
        self._sink = sink
        self._caller = caller
        self._collector = collector
        self._writes = writes
        self._allow_data_loss = allow_data_loss
        self._events: EventStream | None = None  # subscribed before reading starts
        self._closed = False
        self._unrecorded: set[PartitionFeed] = set()  # feeds that started without a recorded offset
        self._wakeup = asyncio.Event()

    def close(self) -> None:
        """Stop starting feeds, even if partitions are assigned later."""
        self._closed = True

    def seek_back(self) -> None:
        """Seek the consumer back to the first record of each partition that is not in the sink.

        The user may pass the same consumer to another feeder later. If the sink has no data of a
        partition, that feeder begins at the consumer's position.
        """
        for tp in self.feeds.keys() & self._consumer.assignment:
            if (offset := self.feeds[tp].first_unwritten) is not None:
                self._consumer.seek(tp, offset)

    def feed_for(self, partition: TopicPartition, first: int) -> PartitionFeed:
        """Return the feed to which the next records of a partition belong.

        `first` is the offset of the first of these records. Raise `SinkOffsetConflict` if the feed
        is already past `first`. Raise `SinkFailed` if the partition has no feed, because the sink
        did not return its offsets in time.
        """
        feed = self.feeds.get(partition)
        if feed is None:
            raise self._timeout_error()
        if feed.position is not None and first < feed.position:
            raise SinkOffsetConflict(str(self._sink), partition, feed.position, first)
        if feed.first is None:
            progress = self._consumer.progress().get(partition)
            feed.identify(None if progress is None else progress.topic_id)
        return feed

    # --- for the consumer ------------------------------------------------------------------------

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Start a feed for each partition, from the offset after the partition's data in the sink.

        The rebalance waits until all feeds have started. Raise `SinkFailed` if the sink does not
        return its offsets in time.
        """
        try:
            async with asyncio.timeout(self._seconds):
                await self.start_feeds(partitions)
        except TimeoutError:  # without records, nothing else would report it
            raise self._timeout_error() from None

    async def start_feeds(self, partitions: Collection[TopicPartition]) -> None:
        """Start a feed for each partition, from the offset after the partition's data in the sink.

        Unlike `on_partitions_assigned`, this method has no time limit.
        """
        self._events = self._events or self._consumer.events()
        await self._start_feeds(partitions, {})

    @property
    def _seconds(self) -> float:
        """The seconds that this rebalance listener may use: a fraction of `listener_timeout_ms`."""
        return self._consumer.config.member.listener_timeout_ms / 1000 * _TIMEOUT_FRACTION

    def _timeout_error(self) -> SinkFailed:
        reason = "no response within `listener_timeout_ms`"
        return SinkFailed(str(self._sink), "load its offsets", 1, reason)

    async def _start_feeds(
        self, partitions: Collection[TopicPartition], starts: Mapping[TopicPartition, int]
    ) -> None:
        """Start a feed for each partition, from the offset after the partition's data in the sink.

        A partition without an offset in the sink begins at its offset in `starts`, or at the
        consumer's position. A partition that is revoked meanwhile gets no feed. After `close` no
        feeds are started.
        """
        if self._closed or not partitions:
            return
        before = {tp: self.feeds.get(tp) for tp in partitions}
        intents: Mapping[TopicPartition, WriteIntent] = {}
        recorded: Mapping[TopicPartition, int | None]
        if self._sink.remembers:
            recorded = await self._caller.call("load its offsets", self._sink.load, partitions)
        else:
            recorded, intents = await self.intents.load(partitions)
        for tp in partitions:
            if self.feeds.get(tp) is not before[tp] or tp not in self._consumer.assignment:
                continue  # revoked or restarted meanwhile
            end = recorded.get(tp)
            self.feeds[tp] = PartitionFeed(tp, end, written=end, intent=intents.get(tp))
            start = starts.get(tp) if end is None else end
            if start is not None:
                self._consumer.seek(tp, start)
            if end is None and self._consumer.commits:
                self._unrecorded.add(self.feeds[tp])
                self._wakeup.set()

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Wait for the started writes of these partitions, and drop their other records.

        The next owner of the partitions reads the dropped records again. Writes that do not end in
        time are abandoned.
        """
        feeds = self._remove_feeds(partitions)
        try:
            async with asyncio.timeout(self._seconds):
                await self._writes.wait_ended(feeds)
        except TimeoutError:
            names = ", ".join(str(feed.partition) for feed in feeds)
            _log.warning(
                "%s did not finish writes of %s before the revocation, so they are abandoned",
                self._sink,
                names,
            )
        finally:
            self._writes.abandon(feeds)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """End the feeds of these partitions at once, because another member owns them already."""
        self._writes.abandon(self._remove_feeds(partitions))

    def _remove_feeds(self, partitions: Collection[TopicPartition]) -> list[PartitionFeed]:
        feeds = [feed for tp in partitions if (feed := self.feeds.pop(tp, None)) is not None]
        for feed in feeds:
            self._collector.drop(feed)
        return feeds

    async def commit_starts(self) -> None:
        """Commit the start offset of each partition for which neither sink nor group has an offset.

        The partition may move to another member before any record is written. With the commit the
        new member starts at the same offset. Otherwise it could start at the end of the log at
        that time, and miss records.

        Return only when cancelled.
        """
        while True:
            await self._wakeup.wait()
            progress = self._consumer.progress()
            self._unrecorded = {
                feed for feed in self._unrecorded if self.feeds.get(feed.partition) is feed
            }
            starts = {
                feed: start
                for feed in self._unrecorded
                if feed.partition in progress
                and (start := progress[feed.partition].start_offset) is not None
            }
            self._unrecorded -= starts.keys()
            if not self._unrecorded:
                self._wakeup.clear()
            if offsets := {
                feed.partition: start for feed, start in starts.items() if not feed.sent
            }:
                await self.intents.record(offsets)
            await asyncio.sleep(POLL_SECONDS)

    async def gaps(self) -> AsyncIterator[PartitionFeed]:
        """Yield the feed of each partition whose next records were deleted from the log.

        The attribute `gap` of the feed is set to the offset of the first deleted record.

        Raise `SinkOffsetConflict` for a re-created topic if records of the old topic may be in the
        sink, because the sink continues only at the offset after them.
        """
        assert self._events is not None
        async for event in self._events:
            if not isinstance(event, Skipped | Recreated):
                continue
            feed = self.feeds.get(event.partition)
            if feed is None or feed.position is None:
                continue  # nothing was collected yet: the consumer decides where to begin
            if isinstance(event, Recreated):
                if feed.position > 0:
                    del self.feeds[feed.partition]  # records of the old topic may be written
                    raise SinkOffsetConflict(str(self._sink), feed.partition, feed.position, 0)
                self._consumer.seek_to_beginning(feed.partition)
            elif event.start <= event.stop and feed.gap is None:  # otherwise reading went back
                feed.set_gap(event.start)
                yield feed

    async def pass_gap(self, feed: PartitionFeed) -> bool:
        """Continue a feed after its gap: the records that were deleted before they were read.

        First wait until all fetched records before the gap are in batches, because they may be
        deleted as well. Then seek to the start of the log and return True. Return True without a
        seek if the feed has ended meanwhile. Return False if data loss is not allowed.
        """
        partition = feed.partition
        await wait_until(lambda: self.feeds.get(partition) is not feed or self._is_at_gap(feed))
        if self.feeds.get(partition) is not feed:
            return True  # the partition was revoked, or has a new feed
        return self._skip_gap(feed)

    def blocked_feed(self, error: OffsetUnavailable) -> PartitionFeed | None:
        """Handle an `error` of the consumer which says that the next records were deleted.

        With ``auto_offset_reset="none"`` the consumer raises this error at the first deleted
        record. If data loss is allowed, seek to the start of the log and return None. Otherwise
        return the feed of the partition, which cannot continue.

        Raise `error` if no records of the partition were collected before, or if its offset is
        after the end of the log.
        """
        feed = self.feeds.get(TopicPartition(error.topic, error.partition))
        if feed is None or feed.position is None or error.offset > error.latest:
            raise error  # not a gap after collected records
        feed.set_gap(error.offset)
        return None if self._skip_gap(feed) else feed

    def _skip_gap(self, feed: PartitionFeed) -> bool:
        if self._allow_data_loss:
            _log.warning(
                "the broker deleted records of %s from offset %d on before the sink had them; they "
                "are lost, and reading continues at the start of the log",
                feed.partition,
                feed.gap,
            )
            feed.set_gap(None)
            self._consumer.seek_to_beginning(feed.partition)
        return self._allow_data_loss

    def _is_at_gap(self, feed: PartitionFeed) -> bool:
        if feed.holding or feed.gap is None or feed.partition not in self._consumer.assignment:
            return False
        position = self._consumer.position_now(feed.partition)
        return position is not None and position >= feed.gap

    def skip_corrupt(self, error: CorruptRecords) -> bool:
        """Seek past the corrupt records that `error` reports, and return True.

        Return False, without a seek, if the option ``on_poison`` is not "skip" or the offset after
        the records is unknown.
        """
        if self._consumer.config.delivery.on_poison != "skip" or error.resume is None:
            return False
        _log.warning("corrupt records are skipped up to offset %d: %s", error.resume, error)
        if (tp := TopicPartition(error.topic, error.partition)) in self._consumer.assignment:
            self._consumer.seek(tp, error.resume)
        return True

    def deleted_error(self, feed: PartitionFeed) -> RecordsDeleted:
        """Return the error to raise for a feed whose next records were deleted from the log."""
        recorded = feed.first if feed.written is None else feed.written
        return RecordsDeleted(str(self._sink), feed.partition, recorded or 0)

    # --- for writes ------------------------------------------------------------------------------

    async def before_write(self, batch: FeedBatch) -> Collection[TopicPartition]:
        """Commit the intent to write the batch.

        Return the partitions for which the commit failed. They must not be written.
        """
        return await self.intents.declare(batch)

    async def on_written(self, ends: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets in `ends` to the group. The sink has all records before them."""
        await self.intents.record(ends)

    async def on_rejected(self, starts: Mapping[PartitionFeed, int]) -> None:
        """Drop the collected records of the feeds in `starts`, and start a new feed for each.

        The new feeds start after the sink's data. A partition without data in the sink starts at
        its offset in `starts`. A sink rejects records if another writer wrote, if a partition was
        revoked, or if the sink or the group lost data.
        """
        names = ", ".join(str(feed.partition) for feed in starts)
        _log.warning(
            "records of %s were rejected and are read again after the data in %s", names, self._sink
        )
        restarted = {
            feed.partition: start
            for feed, start in starts.items()
            if self.feeds.get(feed.partition) is feed
        }
        for tp in restarted:
            self._collector.drop(self.feeds[tp])
        await self._start_feeds(restarted.keys(), restarted)
