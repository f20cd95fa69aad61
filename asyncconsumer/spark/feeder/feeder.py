"""The feeder: writes the records of a consumer to a sink in micro-batches, exactly once.

async with SparkFeeder(consumer, LandingFolder("publishing/orders")) as feeder:
    await feeder.run()
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Final

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.wait import wait_until
from asyncconsumer.config.validation import whole_number
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import (
    ClosedError,
    ConfigError,
    ConsumerError,
    ConsumerTimeout,
    CorruptRecords,
    NotAssigned,
    OffsetUnavailable,
)
from asyncconsumer.metrics.measurements import Measurements
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.records.arrow import COLUMNS, schema_of
from asyncconsumer.spark.feeder.batches import (
    APP,
    BatchLimits,
    Collector,
    OpenBatch,
    PartitionFeed,
    TableBuilder,
    Transform,
)
from asyncconsumer.spark.feeder.feed_state import FeedState
from asyncconsumer.spark.feeder.sink_caller import Grace, SinkCaller
from asyncconsumer.spark.feeder.writes import FailureState, WriteQueue
from asyncconsumer.spark.sinks.function import WriteBatch, WriteSink
from asyncconsumer.spark.sinks.protocol import Sink
from asyncconsumer.types import TopicPartition
from asyncconsumer.web.measured import Measured
from asyncconsumer.web.status import Status

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger(__name__)
_POLL_SECONDS: Final = 0.02
_SECONDS_BETWEEN_COMMITS: Final = 1.0
_NEEDED: Final = ("topic", "partition", "offset")  # the partition and range of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class FeederStats:
    """The progress of a feeder.

    ``lag`` counts the offsets of the assigned partitions that are in the log and not in the sink.

    Batches that the sink merged count as one in ``batches``, but separately in ``in_flight``.
    """

    records: int
    bytes: int
    batches: int
    in_flight: int
    bytes_in_flight: int
    bytes_collecting: int
    last_write_seconds: float
    retries: int
    refused: int
    abandoned: int
    failed_commits: int
    lag: int | None

    def measurements(self) -> Measurements:
        """Return the values of the feeder's metrics, by name. An unknown lag is left out."""
        values = {
            "feeder_records_total": self.records,
            "feeder_bytes_total": self.bytes,
            "feeder_batches_total": self.batches,
            "feeder_in_flight": self.in_flight,
            "feeder_in_flight_bytes": self.bytes_in_flight,
            "feeder_collecting_bytes": self.bytes_collecting,
            "feeder_lag_records": self.lag,
            "feeder_retries_total": self.retries,
            "feeder_refused_total": self.refused,
            "feeder_abandoned_total": self.abandoned,
            "feeder_failed_commits_total": self.failed_commits,
        }
        return {name: [(value,)] for name, value in values.items() if value is not None}


class SparkFeeder(Measured, AsyncResource):
    """A feeder that writes the records of a consumer to a sink, in batches, exactly once.

    Pass either a `sink` or a `write` function, plain or a coroutine. The function is called with
    the batch's Arrow table and the `FeedBatch`. With a `spark` session, classic or Connect, it is
    called with a DataFrame and the `FeedBatch`.

    A batch ends at `max_records` or `max_bytes`, or `max_wait_ms` after its first record. While
    `max_in_flight` batches are being written, reading continues for one more batch and then waits.
    Memory holds about ``max_in_flight + 1`` times `max_bytes`, and in addition the consumer's
    ``max_buffered_bytes``.
    A sink may merge batches that wait for each other into one commit, as `DeltaSink` does.

    The sink stores offsets in the same commit as the data. Reading begins after the data in the
    sink. Partitions without data in the sink begin at the group's committed offset. Written
    offsets are committed to the group as well, so that tools can show its lag.

    The consumer must not commit by itself: set ``commit_policy="manual"``. A consumer that is not
    open is opened and closed by the feeder. A consumer that is already open stays open. When the
    feeder closes, it seeks such a consumer back to the first record that was not written.

    `app` is the writer's name in the ids that a `write` function passes to Delta. It cannot be
    combined with a `sink`.

    Records that retention deleted before they were written raise `RecordsDeleted`. With
    ``fail_on_data_loss=False`` reading continues with the first record in the log. This is
    independent of ``auto_offset_reset``, which applies to partitions that were never written.

    A corrupt batch in the log raises `CorruptRecords`, after all earlier records are written. With
    the consumer's ``on_poison="skip"`` reading continues after the corrupt batch.
    """

    def __init__(
        self,
        consumer: Consumer[Any, Any],
        sink: Sink | None = None,
        *,
        write: WriteBatch | None = None,
        spark: object = None,
        max_records: int = 250_000,
        max_bytes: int = 64 * 2**20,
        max_wait_ms: int = 5_000,
        max_in_flight: int = 3,
        retries: int = 5,
        grace_ms: int = 30_000,
        columns: Sequence[str] = COLUMNS,
        transform: Transform | None = None,
        app: str | None = None,
        fail_on_data_loss: bool = True,
    ) -> None:
        for name in ("max_records", "max_bytes", "max_wait_ms", "max_in_flight"):
            whole_number(name, locals()[name], 1)
        for name in ("retries", "grace_ms"):
            whole_number(name, locals()[name], 0)
        self.sink: Final = _make_sink(sink, write, spark, app)
        self._consumer = consumer
        _check(consumer, self.sink)
        schema_of(tuple(columns))  # raises if a column is unknown
        self._columns = tuple(dict.fromkeys((*_NEEDED, *columns)))
        self._grace = Grace(grace_ms / 1000)
        limits = BatchLimits(max_records, max_bytes, max_wait=max_wait_ms / 1000)
        builder = TableBuilder(columns, transform)
        self._collector = Collector(limits, builder, apart=self.sink.apart, app=app or APP)
        self._caller = SinkCaller(
            str(self.sink),
            threads=max_in_flight + 1,  # one more, to load offsets
            retries=retries,
            randomness=Random(),  # noqa: S311 - jitter
        )
        failure = self._failure = FailureState()
        self._writes = WriteQueue(self.sink, self._caller, failure, self.recorder, max_in_flight)
        self._state = FeedState(
            consumer,
            self.sink,
            self._caller,
            self._collector,
            self._writes,
            allow_data_loss=not fail_on_data_loss,
        )
        self._scope = Scope("feeder")
        self._batch_open = asyncio.Event()  # set when a batch with a deadline may be open

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._caller.close, self._grace)
        await self._caller.call("open", self.sink.open)
        self._consumer.listen(self._state)
        stack.callback(self._state.close)
        if self._consumer.is_open:
            stack.callback(self._state.seek_back)
        else:
            await stack.enter_async_context(self._consumer)
        await stack.enter_async_context(self._scope)
        new = self._consumer.assignment - self._state.feeds.keys()
        await self._state.start_feeds(new)
        reading = self._scope.start(self._read(), "read")
        tasks = [
            reading,
            self._scope.start(self._watch_clock(), "watch the clock"),
            self._scope.start(self._state.commit_starts(), "commit starts"),
            self._scope.start(self._watch_log(reading), "watch the log"),
            self._scope.start(self._commit_gaps(), "commit gaps"),
        ]
        stack.push_async_callback(self._drain, *tasks)

    def _after_close(self) -> None:
        self._failure.check(again=False)

    async def run(self) -> None:
        """Wait until the feeder fails, and raise its error.

        If the consumer stops reading (``stop_at``, ``idle_timeout_ms``), return after all records
        are written.
        """
        self._scope.check_open()
        await self._failure.ended.wait()
        self._failure.check()

    async def caught_up(self) -> None:
        """Wait until the sink has every record that is now in the assigned partitions."""
        self._scope.check_open()
        ends = await self._consumer.end_offsets(await self._consumer.wait_assigned())
        for tp, end in ends.items():
            await wait_until(partial(self._is_written_to, tp, end), every=_POLL_SECONDS)

    def _is_written_to(self, tp: TopicPartition, end: int) -> bool:
        """Return whether the sink has all records of `tp` before `end`.

        Return True if another member owns `tp`. If records are missing because the feeder has
        failed, raise the feeder's error.
        """
        if self._has_all(tp, end):
            return True
        self._failure.check()
        return False

    def stats(self) -> FeederStats:
        """Return the current progress."""
        counts, in_flight, lag = self._writes.counts, self._writes.in_flight, None
        if self._scope.is_open:
            progress = self._consumer.progress()
            lag = sum(
                max(0, read.high_watermark - (self._written_end(tp) or read.start_offset or 0))
                for tp in self._state.feeds
                if (read := progress.get(tp)) is not None
            )
        return FeederStats(
            records=counts.records,
            bytes=counts.bytes,
            batches=counts.batches,
            in_flight=len(in_flight),
            bytes_in_flight=sum(batch.size for batch in in_flight),
            bytes_collecting=self._collector.size,
            last_write_seconds=counts.last_write_seconds,
            retries=self._caller.retried,
            refused=counts.refused,
            abandoned=counts.abandoned,
            failed_commits=self._state.intents.failed,
            lag=lag,
        )

    @property
    def consumer(self) -> Consumer[Any, Any]:
        """The consumer that reads for the feeder."""
        return self._consumer

    @property
    def grace_ms(self) -> int:
        """The time in ms in which records are still written when the feeder is closed."""
        return round(self._grace.seconds * 1000)

    @property
    def recorder(self) -> Recorder:
        """The recorder of counters and histograms, which is that of the consumer."""
        return self._consumer.recorder

    def status(self) -> Status:
        """Return the status of the consumer, with the measurements of the feeder."""
        status = self._consumer.status()
        return replace(status, measurements={**status.measurements, **self.stats().measurements()})

    def _has_all(self, tp: TopicPartition, end: int) -> bool:
        """Return whether the sink has every record of `tp` before `end`.

        Return True if `tp` is not assigned to this consumer, because another member writes it.
        """
        if tp not in self._consumer.assignment:
            return True  # another member writes it
        position = self._written_position(tp)
        return position is not None and position >= end

    def _written_end(self, tp: TopicPartition) -> int | None:
        """Return the offset before which the sink has all records of `tp`, or None."""
        position, written = self._written_position(tp), self._state.feeds[tp].written
        return written if position is None else max(position, written or 0)

    def _written_position(self, tp: TopicPartition) -> int | None:
        """Return the consumer's position in `tp`, or None.

        Return None if the sink lacks a record before the position, or if `tp` is not assigned.
        """
        feed = self._state.feeds.get(tp)
        if feed is None or not feed.all_written:
            return None
        try:
            return self._consumer.position_now(tp)
        except NotAssigned:
            return None

    # --- reading ---------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            await self._finish(await self._read_until_end())
        except Exception as error:  # noqa: BLE001 - raised in `run`
            self._failure.set(error)

    async def _read_until_end(self) -> ConsumerError | PartitionFeed:
        """Read until the consumer ends or fails, or deleted records block a partition.

        Return the consumer's error, a `ClosedError` after its regular end, or the blocked
        `PartitionFeed`.
        """
        while True:
            try:
                async for records in self._consumer.arrow(columns=self._columns, timestamps="us"):
                    await self._collect(records)
            except CorruptRecords as error:
                if not self._state.skip_corrupt(error):
                    return error
            except OffsetUnavailable as error:
                if (feed := self._state.blocked_feed(error)) is not None:
                    return feed
            except ConsumerTimeout as error:
                return error
            else:  # stop_at, idle_timeout_ms, or a closed consumer
                return ClosedError("The consumer has ended.")

    async def _collect(self, records: "pa.RecordBatch") -> None:
        now, first = asyncio.get_running_loop().time, records["offset"][0].as_py()
        tp = TopicPartition(records["topic"][0].as_py(), records["partition"][0].as_py())
        feed = self._state.feed_for(tp, first)
        if feed.gap is not None and first >= feed.gap:
            return
        rest: pa.RecordBatch | None = records
        feed.hold(first)
        # records of an ended feed are dropped: the next feed of the partition reads them again
        while rest is not None and feed.alive and self._state.feeds.get(tp) is feed:
            rest = self._collector.add(feed, rest, now())
            self._batch_open.set()
            while (full := self._collector.full()) is not None:
                await self._send(full)
        feed.release()

    async def _finish(self, reason: ConsumerError | PartitionFeed) -> None:
        """Write all collected records, then stop the feeder.

        `reason` is the error to raise, or the feed whose next records were deleted from the log.
        """
        await self._write_all()
        self._failure.set(
            self._state.deleted_error(reason) if isinstance(reason, PartitionFeed) else reason
        )

    async def _write_all(self) -> None:
        """Write all collected records, and wait until they are written or the feeder fails."""
        while not self._failure.ended.is_set() and (batch := self._collector.any()):
            await self._send(batch)
        await self._writes.wait_ended()

    async def _watch_clock(self) -> None:
        """Write each batch `max_wait_ms` after its first record, even if the batch is small."""
        now = asyncio.get_running_loop().time
        while True:
            await self._batch_open.wait()
            self._batch_open.clear()
            while (due := self._collector.due(now())) is not None:
                await self._send(due)
            if (wait := self._collector.deadline - now()) < inf:
                await asyncio.sleep(max(0.0, wait))
                self._batch_open.set()

    async def _watch_log(self, reading: asyncio.Task[None]) -> None:
        """For each range of deleted records, start a task that seeks past it or stops the feeder.

        `reading` is the task that reads records. It is cancelled if the feeder stops.
        """
        try:
            async for feed in self._state.gaps():
                self._scope.start(self._handle_gap(feed, reading), f"get over {feed.gap}")
        except ConsumerError as error:
            self._failure.set(error)

    async def _handle_gap(self, feed: PartitionFeed, reading: asyncio.Task[None]) -> None:
        if not await self._state.pass_gap(feed):
            reading.cancel()
            await self._finish(feed)

    async def _commit_gaps(self) -> None:
        """Commit the consumer's position in partitions of which the sink has all records.

        The position can be after the last record, because transaction markers have offsets, too.
        Without this commit the group would always show a lag.
        """
        committed: dict[TopicPartition, int] = {}
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_COMMITS)
            positions = {
                tp: position
                for tp, feed in self._state.feeds.items()
                if feed.written is not None
                and (position := self._written_position(tp)) is not None
                and position > feed.written
            }
            if new := {tp: p for tp, p in positions.items() if committed.get(tp) != p}:
                await self._state.intents.record(new)
            committed = positions

    async def _send(self, open_batch: OpenBatch) -> None:
        """Wait until another write may start, then start the write of `open_batch`."""
        await self._writes.wait_slot()
        if self._collector.is_open(open_batch):  # another task may have sent it meanwhile
            batch, feeds = self._collector.take(open_batch)
            if batch.parts:
                self._writes.start(self._scope, batch, feeds, self._state)

    async def _drain(self, *reading: asyncio.Task[None]) -> None:
        """Cancel the tasks in `reading`, and write the collected records within `grace_ms`."""
        for task in reading:
            task.cancel()
        self._state.close()
        try:
            async with asyncio.timeout_at(self._grace.end()):
                await self._write_all()
        except TimeoutError:
            unwritten = len(self._writes.in_flight)
            _log.warning(
                "%s did not finish the writes of %d batches within grace_ms", self.sink, unwritten
            )
        except ClosedError:  # the scope failed: its error ends the block and is raised there
            _log.warning("the feeder failed, so collected records are not written to %s", self.sink)


def _make_sink(sink: Sink | None, write: WriteBatch | None, spark: object, app: str | None) -> Sink:
    if (sink is None) == (write is None):
        raise ConfigError("A feeder needs either `sink` or `write`.")
    if sink is not None:
        if spark is not None:
            raise ConfigError(
                "`spark` needs `write`, because a sink uses no Spark session. Remove one of them."
            )
        if app is not None:
            raise ConfigError(
                "`app` of a feeder needs `write`. Pass `app` to the DeltaSink or IcebergSink. "
                "Other sinks have no application name."
            )
        return sink
    assert write is not None
    return WriteSink(write, spark)


def _check(consumer: Consumer[Any, Any], sink: Sink) -> None:
    if consumer.commits and (
        consumer.config.auto_commit or consumer.config.delivery.commit_policy == "at_most_once"
    ):
        raise ConfigError(
            "Only the feeder may commit, after records are written. Set `commit_policy='manual'` "
            "for the consumer."
        )
    if consumer.config.delivery.on_poison == "dead_letter":
        raise ConfigError(
            "A feeder writes no dead letters. Set `on_poison` of the consumer to 'raise' or 'skip'."
        )
    if not sink.remembers and not consumer.commits:
        raise ConfigError(
            f"{sink} stores no offsets, and without a group nor does the consumer. Set `group_id`."
        )
    if not sink.remembers and not consumer.keeps_metadata:
        raise ConfigError(
            f"{sink} stores no offsets, so the feeder needs commit metadata, which only offsets in "
            "Kafka have. Use another sink, such as LandingFolder, or store offsets in Kafka: "
            "without `offsets`, and in a ZooKeeper group with `offsets_storage='kafka'` and "
            "`dual_commit_enabled=False`."
        )
