"""The feeder: writes the records of a consumer to a sink in micro-batches, exactly once.

async with SparkFeeder(consumer, LandingFolder("landing/orders")) as feeder:
    await feeder.run()
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import inf
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from asyncconsumer.aio.scope import Scope
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
from asyncconsumer.spark.sinks.function import Write, WriteSink
from asyncconsumer.spark.sinks.protocol import Sink
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_LOOKS: Final = 0.02
_SECONDS_BETWEEN_TELLS: Final = 1.0
_NEEDED: Final = ("topic", "partition", "offset")  # the partition and range of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class FeederStats:
    """The progress of a feeder.

    ``lag`` counts the offsets of the assigned partitions that are in the log and not in the sink.
    Batches that a sink merged count as one in ``batches``. While in flight, they count separately.
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


class SparkFeeder:
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
        write: Write | None = None,
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
        self.sink: Final = _sink_of(sink, write, spark, app)
        self._consumer = consumer
        _check(consumer, self.sink)
        schema_of(tuple(columns))  # raises if a column is unknown
        self._columns = tuple(dict.fromkeys((*_NEEDED, *columns)))
        self._grace = Grace(grace_ms / 1000)
        limits = BatchLimits(max_records, max_bytes, max_wait=max_wait_ms / 1000)
        shape = TableBuilder(columns, transform)
        self._collector = Collector(limits, shape, apart=self.sink.apart, app=app or APP)
        self._asking = SinkCaller(
            str(self.sink),
            threads=max_in_flight + 1,  # one more, to load offsets
            retries=retries,
            randomness=Random(),  # noqa: S311 - jitter
        )
        self._ending = FailureState()
        self._flights = WriteQueue(self.sink, self._asking, self._ending, most=max_in_flight)
        self._ours = FeedState(
            consumer,
            self.sink,
            self._asking,
            self._collector,
            self._flights,
            may_lose=not fail_on_data_loss,
        )
        self._scope = Scope("feeder")
        self._stack = AsyncExitStack()
        self._begun = asyncio.Event()  # set when a batch with a deadline may be open

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._asking.end, self._grace)
            await self._asking.ask("open", self.sink.open)
            self._consumer.listen(self._ours)
            stack.callback(self._ours.close)
            if self._consumer.is_open:
                stack.callback(self._ours.hand_back)
            else:
                await stack.enter_async_context(self._consumer)
            await stack.enter_async_context(self._scope)
            new = self._consumer.assignment - self._ours.lanes.keys()
            await self._ours.take_up(new)
            reading = self._scope.start(self._read(), "read")
            tasks = [
                reading,
                self._scope.start(self._watch_clock(), "watch the clock"),
                self._scope.start(self._ours.tell_beginnings(), "tell beginnings"),
                self._scope.start(self._watch_log(reading), "watch the log"),
                self._scope.start(self._tell_gaps(), "tell gaps"),
            ]
            stack.push_async_callback(self._drain, *tasks)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, where)
        if error is None:
            self._ending.check(again=False)

    async def run(self) -> None:
        """Wait until the feeder fails, and raise its error.

        If reading ends by itself (``stop_at``, ``idle_timeout_ms``), return after everything is
        written.
        """
        self._scope.check_open()
        await self._ending.there.wait()
        self._ending.check()

    async def caught_up(self) -> None:
        """Wait until the sink has everything that the assigned partitions hold at this moment."""
        self._scope.check_open()
        ends = await self._consumer.end_offsets(await self._consumer.wait_assigned())
        for one, end in ends.items():
            while not self._has_all(one, end):
                self._ending.check()
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    def stats(self) -> FeederStats:
        """Return the current progress."""
        counts, under_way, lag = self._flights.counts, self._flights.under_way, None
        if self._scope.is_open:
            far = self._consumer.progress()
            lag = sum(
                max(0, far[one].high_watermark - (self._done_with(one) or far[one].begun or 0))
                for one in self._ours.lanes
                if one in far
            )
        return FeederStats(
            records=counts.records,
            bytes=counts.bytes,
            batches=counts.batches,
            in_flight=len(under_way),
            bytes_in_flight=sum(batch.size for batch in under_way),
            bytes_collecting=self._collector.size,
            last_write_seconds=counts.last_write_seconds,
            retries=self._asking.repeated,
            refused=counts.refused,
            abandoned=counts.abandoned,
            failed_commits=self._ours.promises.failed,
            lag=lag,
        )

    def _has_all(self, one: TopicPartition, end: int) -> bool:
        """Return whether the sink has every record before `end`."""
        if one not in self._consumer.assignment:
            return True  # another member writes it
        read = self._read_and_written(one)
        return read is not None and read >= end

    def _done_with(self, one: TopicPartition) -> int | None:
        """Return the offset up to which the sink has a partition; None if it has nothing."""
        read, written = self._read_and_written(one), self._ours.lanes[one].written
        return written if read is None else max(read, written or 0)

    def _read_and_written(self, one: TopicPartition) -> int | None:
        """Return the read position if the sink has everything before it, otherwise None."""
        lane = self._ours.lanes.get(one)
        if lane is None or not lane.settled:
            return None
        try:
            return self._consumer.position_now(one)
        except NotAssigned:
            return None

    # --- reading ---------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            await self._finish(await self._read_on())
        except Exception as error:  # noqa: BLE001 - raised in `run`
            self._ending.because(error)

    async def _read_on(self) -> ConsumerError | PartitionFeed:
        """Read until that is no longer possible, and return the reason."""
        while True:
            try:
                async for records in self._consumer.arrow(columns=self._columns, timestamps="us"):
                    await self._collect(records)
            except CorruptRecords as error:
                if not self._ours.skips(error):
                    return error
            except OffsetUnavailable as error:
                if (lane := self._ours.broken_off(error)) is not None:
                    return lane
            except ConsumerTimeout as error:
                return error
            else:  # stop_at, idle_timeout_ms, or a closed consumer
                return ClosedError("there is no more to read")

    async def _collect(self, records: "pa.RecordBatch") -> None:
        now, first = asyncio.get_running_loop().time, records["offset"][0].as_py()
        place = TopicPartition(records["topic"][0].as_py(), records["partition"][0].as_py())
        lane = self._ours.lane_of(place, first)
        if lane.gap is not None and first >= lane.gap:
            return
        rest: pa.RecordBatch | None = records
        lane.hold(first)
        # records of an ended feed are dropped: the next feed of the partition reads them again
        while rest is not None and lane.alive and self._ours.lanes.get(place) is lane:
            rest = self._collector.add(lane, rest, now())
            self._begun.set()
            while (full := self._collector.full()) is not None:
                await self._send(full)
        lane.release()

    async def _finish(self, reason: ConsumerError | PartitionFeed) -> None:
        """Write everything collected so far, then stop the feeder with `reason`.

        A `PartitionFeed` as the reason means that records of its partition are gone.
        """
        await self._write_all()
        self._ending.because(
            self._ours.gone(reason) if isinstance(reason, PartitionFeed) else reason
        )

    async def _write_all(self) -> None:
        """Write all collected records, and wait until they are written or the feeder fails."""
        while not self._ending.there.is_set() and (one := self._collector.any()):
            await self._send(one)
        await self._flights.ended()

    async def _watch_clock(self) -> None:
        """Write the batches that are older than `max_wait_ms`, even if they are small."""
        now = asyncio.get_running_loop().time
        while True:
            await self._begun.wait()
            self._begun.clear()
            while (due := self._collector.due(now())) is not None:
                await self._send(due)
            if (wait := self._collector.deadline - now()) < inf:
                await asyncio.sleep(max(0.0, wait))
                self._begun.set()

    async def _watch_log(self, reading: asyncio.Task[None]) -> None:
        """Handle each gap in the log: continue after it, or stop the feeder."""
        try:
            async for lane in self._ours.gaps():
                self._scope.start(self._get_over(lane, reading), f"get over {lane.gap}")
        except ConsumerError as error:
            self._ending.because(error)

    async def _get_over(self, lane: PartitionFeed, reading: asyncio.Task[None]) -> None:
        if not await self._ours.get_over(lane):
            reading.cancel()
            await self._finish(lane)

    async def _tell_gaps(self) -> None:
        """Commit the read position where only offsets without records follow the written ones.

        Otherwise the group would show a lag for ever, for example after transaction markers.
        """
        told: dict[TopicPartition, int] = {}
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_TELLS)
            far = {
                one: read
                for one, lane in self._ours.lanes.items()
                if lane.written is not None
                and (read := self._read_and_written(one)) is not None
                and read > lane.written
            }
            if news := {one: at for one, at in far.items() if told.get(one) != at}:
                await self._ours.promises.tell(news)
            told = far

    async def _send(self, one: OpenBatch) -> None:
        """Wait until another write may start, then start the write of `one`."""
        await self._flights.slot()
        if self._collector.holds(one):  # another task may have sent it meanwhile
            batch, lanes = self._collector.take(one)
            if batch.parts:
                self._flights.start(self._scope, batch, lanes, self._ours)

    async def _drain(self, *reading: asyncio.Task[None]) -> None:
        """Stop reading and write the collected records, as far as `grace_ms` allows."""
        for task in reading:
            task.cancel()
        self._ours.close()
        try:
            async with asyncio.timeout_at(self._grace.end()):
                await self._write_all()
        except TimeoutError:
            left = len(self._flights.under_way)
            _log.warning("%s: %d batches were not written within the grace", self.sink, left)
        except ClosedError:  # the scope failed: its error ends the block and is raised there
            _log.warning("%s: what is collected is not written", self.sink)


def _sink_of(sink: Sink | None, write: Write | None, spark: object, app: str | None) -> Sink:
    if (sink is None) == (write is None):
        raise ConfigError("a feeder needs a sink, or a function to write with: one of the two")
    if sink is not None:
        if spark is not None:
            raise ConfigError("spark is for write=...: this sink does without a session")
        if app is not None:
            raise ConfigError("app is for write=...: a DeltaSink takes its own, others have none")
        return sink
    assert write is not None
    return WriteSink(write, spark)


def _check(consumer: Consumer[Any, Any], sink: Sink) -> None:
    if consumer.commits and (
        consumer.config.auto_commit or consumer.config.reading.commit_policy == "at_most_once"
    ):
        raise ConfigError(
            "a feeder commits what is written, and nothing else may: give the consumer "
            "commit_policy='manual'"
        )
    if consumer.config.reading.on_poison == "dead_letter":
        raise ConfigError(
            "a feeder writes no dead letters: give the consumer on_poison='raise', or 'skip'"
        )
    if not sink.remembers and not consumer.commits:
        raise ConfigError(
            f"{sink} keeps no offsets, and the consumer has no group_id to keep them: name one"
        )
    if not sink.remembers and not consumer.keeps_metadata:
        raise ConfigError(
            f"{sink} keeps no offsets, so each batch is promised in a text beside the group's "
            "offset, which Kafka alone surely keeps: take a sink that remembers (LandingFolder, "
            "DeltaSink), or have offsets in Kafka: without offsets=..., and in a group of "
            "ZooKeeper's with offsets_storage='kafka' and dual_commit_enabled=False"
        )
