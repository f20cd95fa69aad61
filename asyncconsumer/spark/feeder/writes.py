"""Writes in flight to a sink: their limit and their order."""

import asyncio
import copy
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import ClosedError, ConsumerError
from asyncconsumer.metrics.recorder import Histogram, Recorder
from asyncconsumer.spark.feeder.batches import FeedBatch, PartitionFeed
from asyncconsumer.spark.feeder.sink_caller import SinkCaller
from asyncconsumer.spark.sinks.protocol import MergingSink, PreparedBatch, Sink
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)


class WriteObserver(Protocol):
    """A listener that may refuse a batch before it is published, and is notified of the result."""

    async def before_write(self, batch: FeedBatch) -> Collection[TopicPartition]:
        """Return the partitions of `batch` that must not be written.

        Another member may already own these partitions.
        """

    async def on_written(self, ends: Mapping[TopicPartition, int]) -> None:
        """Handle a successful write.

        The sink durably has all records of each partition before its offset in `ends`.
        """

    async def on_rejected(self, starts: Mapping[PartitionFeed, int]) -> None:
        """Handle the parts of a batch that were not written, because they were refused.

        `starts` maps the feed of each such part to the part's first offset. These feeds have ended.
        """


@dataclass(slots=True)
class Counts:
    """The totals of all writes so far."""

    durations: Histogram  # of writes
    records: int = 0
    bytes: int = 0
    batches: int = 0
    refused: int = 0  # parts that the sink refused
    abandoned: int = 0  # parts whose feed had ended before the write
    last_write_seconds: float = 0.0

    def add_abandoned(self, parts: int) -> None:
        """Count `parts` parts of batches that were not passed to the sink."""
        self.abandoned += parts

    def add_written(self, batch: FeedBatch, refused: int, seconds: float) -> None:
        """Count a batch that the sink has written in `seconds`.

        `refused` is the number of its parts that the sink refused.
        """
        self.records += batch.rows
        self.bytes += batch.size
        self.batches += bool(batch.parts)
        self.refused += refused
        self.last_write_seconds = seconds
        self.durations.observe(seconds)


class FailureState:
    """The first error that stops a feeder. The event `ended` is set when the error is stored."""

    def __init__(self) -> None:
        self.ended: Final = asyncio.Event()
        self._reason: Exception | None = None
        self._raised = False

    def set(self, error: Exception) -> None:
        """Store the error, unless an earlier one is stored.

        A `ClosedError` stops the feeder, and `check` does not raise it.
        """
        self._reason = self._reason or error
        self.ended.set()

    def check(self, *, again: bool = True) -> None:
        """Raise the stored error, if there is one.

        With `again=False`, raise it only if it was never raised before.
        """
        if self._reason is None or isinstance(self._reason, ClosedError):
            return
        if again or not self._raised:
            self._raised = True
            # a copy, because each raise extends the traceback
            raise copy.copy(self._reason) from self._reason.__cause__ or self._reason


class PreparedWrite(NamedTuple):
    """A batch that is prepared for publishing, with the feed of each of its partitions.

    The batch belongs to one pending write, or merges the batches of several.
    """

    ready: PreparedBatch
    feeds: Mapping[TopicPartition, PartitionFeed]

    def live_parts(self, batch: FeedBatch) -> FeedBatch:
        """Return `batch` without the parts whose feeds have ended."""
        return batch.without({tp for tp in batch.parts if not self.feeds[tp].alive})

    def merge(self, other: "PreparedWrite", sink: MergingSink) -> "PreparedWrite | None":
        """Return one prepared write with the batches of this write and of the later write `other`.

        Return None if a feed of either has ended, or if the sink cannot merge the batches.
        """
        feeds = {**self.feeds, **other.feeds}
        # a failed write between the two has ended its feeds: its records would be missing
        if not all(feed.alive for feed in feeds.values()):
            return None
        try:
            ready = sink.join_batches(self.ready, other.ready)
        except Exception:  # noqa: BLE001 - a sink may raise anything; merging is optional
            _log.warning("%s failed to merge two batches, so it writes both", sink, exc_info=True)
            return None
        return None if ready is None else PreparedWrite(ready, feeds)


@dataclass(slots=True, eq=False)
class PendingWrite:
    """The write of one batch, from its start until the sink has the batch or it is abandoned."""

    feeds: Mapping[TopicPartition, PartitionFeed]
    batch: FeedBatch | None  # None after it was written or abandoned
    prepared: PreparedWrite | None = None
    publishing: bool = False  # the sink was asked to publish it, alone or merged

    @property
    def needed(self) -> bool:
        """Whether at least one part of the batch still has to be written."""
        return self.batch is not None and any(feed.alive for feed in self.feeds.values())

    @property
    def orphaned(self) -> bool:
        """Whether the sink still publishes the batch although all its feeds have ended."""
        return self.publishing and self.batch is not None and not self.needed

    def set_prepared(self, ready: PreparedBatch) -> PreparedWrite:
        """Store the batch that the sink has prepared, and return it with this write's feeds."""
        self.prepared = PreparedWrite(ready, self.feeds)
        return self.prepared

    def mark_publishing(self) -> None:
        """Record that the sink was asked to publish the batch."""
        self.publishing = True

    def blocks(self, other: "PendingWrite") -> bool:
        """Return whether the later write `other` must wait for this write.

        A write must wait for an earlier one that has records of a partition with the same feed,
        unless the feed has ended.
        """
        return self.batch is not None and any(
            feed.alive and self.feeds.get(tp) is feed for tp, feed in other.feeds.items()
        )

    def release(self) -> None:
        """Drop the batch and the prepared data after the write has ended, to free their memory."""
        self.batch = self.prepared = None


class WriteQueue:
    """The writes in flight, at most `limit`. Batches of one partition are published in order.

    A write that hangs after its feeds have ended no longer counts for `limit`.
    """

    def __init__(
        self,
        sink: Sink,
        caller: SinkCaller,
        failure: FailureState,
        recorder: Recorder,
        limit: int,
    ) -> None:
        self.counts: Final = Counts(recorder.histogram("feeder_write_duration_seconds"))
        self._sink = sink
        self._caller = caller
        self._failure = failure
        self._limit = limit
        self._writes: dict[PendingWrite, None] = {}  # in order, until the observer was notified
        self._changed = asyncio.Event()

    @property
    def in_flight(self) -> list[FeedBatch]:
        """The batches that are still to be written."""
        return [write.batch for write in self._writes if write.batch is not None and write.needed]

    async def wait_slot(self) -> None:
        """Wait until fewer than `limit` writes are in flight, so that `start` may be called."""
        while len(self.in_flight) >= self._limit:
            await self._changed.wait()

    def start(
        self,
        scope: Scope,
        batch: FeedBatch,
        feeds: Mapping[TopicPartition, PartitionFeed],
        observer: WriteObserver,
    ) -> None:
        """Start the write of a batch, as a task of `scope`.

        The caller must await `wait_slot` before, because this method does not check the limit.
        """
        write = PendingWrite(feeds, batch)
        scope.start(self._run(write, observer), f"write {batch.id}")
        self._writes[write] = None
        for feed in feeds.values():
            feed.sent = True

    def abandon(self, feeds: Collection[PartitionFeed]) -> None:
        """End these feeds, so that the sink is not asked to publish more of their records.

        Then wake the tasks that wait for writes of these feeds.
        """
        for feed in feeds:
            feed.end()
        self._notify()

    async def wait_ended(self, feeds: Collection[PartitionFeed] | None = None) -> None:
        """Wait until the writes of these feeds have ended and the observer was notified.

        Without `feeds`, wait for all writes, except those that the sink still publishes although
        all their feeds have ended.
        """
        writes = [
            write
            for write in self._writes
            if feeds is None or any(feed in feeds for feed in write.feeds.values())
        ]
        while any(
            write in self._writes and not (feeds is None and write.orphaned) for write in writes
        ):
            await self._changed.wait()

    def _notify(self) -> None:
        """Wake all tasks that wait for a change of the queue."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- one write -------------------------------------------------------------------------------

    async def _run(self, write: PendingWrite, observer: WriteObserver) -> None:
        try:
            ends = await self._write(write, observer)
            # a feed may have ended meanwhile: its partition was revoked, or has a new feed
            if live := {feed.partition: end for feed, end in ends.items() if feed.alive}:
                await observer.on_written(live)
        finally:
            del self._writes[write]
            self._notify()

    async def _write(
        self, write: PendingWrite, observer: WriteObserver
    ) -> Mapping[PartitionFeed, int]:
        """Prepare and publish one batch, perhaps merged with the batches of later writes.

        Return the feed of each written partition, with the offset after its last written record.
        Return an empty mapping if the write failed, was rejected or was merged into an earlier one.
        """
        batch, merged = write.batch, [write]
        assert batch is not None
        try:
            result = await self._caller.call(f"prepare {batch.id}", self._sink.prepare, batch)
            prepared = write.set_prepared(PreparedBatch(batch, result))
            while write.publishing or not self._is_next(write):
                if write.batch is None:
                    return {}  # it was merged into another write, which notifies the observer
                await self._changed.wait()
            prepared, merged = self._merge_followers(write, prepared)
            written = await self._publish(prepared, merged, observer)
            if written is None:  # not after an error: the batch may be in the sink
                await self._caller.call_once(self._sink.discard, result)
        except BaseException as error:
            for pending in merged:
                self.abandon(pending.feeds.values())  # nothing may be written after a gap
            if not isinstance(error, ConsumerError):
                raise
            self._failure.set(error)
            return {}
        else:
            parts = {} if written is None else written.parts
            return {prepared.feeds[tp]: part.end for tp, part in parts.items()}
        finally:
            for pending in merged:
                pending.release()
            self._notify()

    def _is_next(self, write: PendingWrite) -> bool:
        """Return whether no earlier write has to be published before `write`."""
        earlier = takewhile(lambda other: other is not write, self._writes)
        return not any(other.blocks(write) for other in earlier)

    def _merge_followers(
        self, write: PendingWrite, prepared: PreparedWrite
    ) -> tuple[PreparedWrite, list[PendingWrite]]:
        """Merge the prepared batch of `write` with those of later writes, if the sink can.

        Only writes that wait for no other write than `write` are merged. Return the batch to
        publish, and the writes whose batches it contains.
        """
        merged, sink = [write], self._sink
        if not (sink.remembers and isinstance(sink, MergingSink)):
            return prepared, merged
        writes = list(self._writes)
        index = writes.index(write)
        earlier = writes[:index]
        for other in writes[index + 1 :]:
            mergeable = not sink.apart or other.feeds.keys() == write.feeds.keys()
            mergeable = mergeable and not other.publishing
            both = None
            if mergeable and other.prepared and not any(w.blocks(other) for w in earlier):
                both = prepared.merge(other.prepared, sink)
            if both is None:
                earlier.append(other)  # writes that continue where it ends wait for it
            else:
                prepared = both
                merged.append(other)
        return prepared, merged

    async def _publish(
        self,
        prepared: PreparedWrite,
        merged: Collection[PendingWrite],
        observer: WriteObserver,
    ) -> FeedBatch | None:
        """Publish a prepared batch.

        Parts whose feeds have ended, and parts that the observer refuses, are not passed to the
        sink. Return the parts that the sink accepted, or None if the sink was not called.
        """
        now = asyncio.get_running_loop().time
        batch, result = prepared.ready
        live = prepared.live_parts(batch)
        if live.parts and (held_back := await observer.before_write(live)):
            await self._reject(prepared, held_back, observer)
        live = prepared.live_parts(live)
        self.counts.add_abandoned(len(batch.parts) - len(live.parts))
        if not live.parts:
            return None
        started = now()
        for write in merged:
            write.mark_publishing()
        refused = await self._caller.call(f"write {batch.id}", self._sink.publish, live, result)
        written = live.without(refused)
        for tp, part in written.parts.items():
            prepared.feeds[tp].mark_written(part.end)
        self.counts.add_written(written, len(refused), now() - started)
        if refused:
            await self._reject(prepared, refused, observer)
        return written

    async def _reject(
        self,
        prepared: PreparedWrite,
        partitions: Collection[TopicPartition],
        observer: WriteObserver,
    ) -> None:
        """End the feeds of partitions whose parts are not written, and notify the observer.

        The observer starts new feeds, which read the records again.
        """
        parts = prepared.ready.batch.parts
        starts = {prepared.feeds[tp]: parts[tp].start for tp in partitions}
        self.abandon(starts)
        await observer.on_rejected(starts)
