"""The runs of `asyncconsumer bench`: read a topic, write to it, or do both for the latency."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from asyncconsumer.aio.scope import Scope
from asyncconsumer.cli.bench.report import BenchReport, Stopwatch
from asyncconsumer.cli.connect import make_admin
from asyncconsumer.cli.progress import ProgressDisplay
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.producer.batch import RecordDelivery
from asyncconsumer.producer.producer import Producer

ReadAs: TypeAlias = Literal["records", "batches", "chunks", "arrow"]
_PROGRESS_SECONDS: Final = 0.2
_MAX_SAMPLES: Final = 10_000  # of the latencies of written records
_ARRIVAL_SECONDS: Final = 30.0
# the start of a value, for latencies from end to end
_RUN_BYTES: Final = 8
_NUMBER_BYTES: Final = 8
_HEADER_BYTES: Final = _RUN_BYTES + _NUMBER_BYTES


class RecordPlan(NamedTuple):
    """The number of records to write, the size of each value, and the records per second.

    Without a `rate`, records are written as fast as possible.
    """

    records: int
    size: int
    rate: float | None


class _Tally:
    """The number of records that a benchmark has read or written, and the bytes of their values."""

    def __init__(self) -> None:
        self.records = 0
        self.size = 0
        self.first_at: float | None = None

    def add(self, records: int, size: int, stopwatch: Stopwatch) -> None:
        """Add the records of one delivery. `size` is the number of bytes of their values."""
        if self.first_at is None:
            self.first_at = stopwatch.seconds()
        self.records += records
        self.size += size

    def report(self, stopwatch: Stopwatch, latencies: Sequence[float] = ()) -> BenchReport:
        """Return the report of a benchmark that ends now."""
        return BenchReport(
            self.records,
            self.size,
            stopwatch.seconds(),
            stopwatch.cpu_seconds(),
            self.first_at,
            latencies,
        )


async def read_topic(
    topic: str,
    read_as: ReadAs,
    limit: int | None,
    seconds: float | None,
    options: dict[str, Any],
    progress: ProgressDisplay,
) -> BenchReport:
    """Read the topic from its beginning to its current end, without a group.

    Stop earlier after `limit` records or after `seconds`, unless these are None.
    """
    await _require_topic(topic, options)
    stopwatch, counted = Stopwatch(), _Tally()
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "stop_at": "end", **options}
    async with Consumer(topic, max_records=limit, **settings) as consumer, Scope("bench") as scope:
        first = await consumer.beginning_offsets(consumer.assignment)
        ends = await consumer.end_offsets(consumer.assignment)
        total = sum(ends[tp] - first[tp] for tp in ends)
        progress.expect(total if limit is None else min(total, limit))
        scope.start(_show(progress, lambda: counted.records), "progress")
        if seconds is not None:
            scope.start(_stop_after(consumer, seconds), "time limit")
        async for records, size in _deliveries(consumer, read_as):
            counted.add(records, size, stopwatch)
        return counted.report(stopwatch)


async def _deliveries(
    consumer: Consumer[Any, Any], read_as: ReadAs
) -> AsyncIterator[tuple[int, int]]:
    """Yield the number of records in each delivery, and the bytes of their values."""
    if read_as == "arrow":
        async for table in consumer.arrow():
            yield table.num_rows, table.column("value").nbytes
    elif read_as == "chunks":
        async for chunk in consumer.chunks():
            values = [len(record.value or b"") for record in chunk]
            yield len(values), sum(values)
    elif read_as == "batches":
        async for batch in consumer.batches():
            yield len(batch), sum([len(record.value or b"") for record in batch])
    else:
        records = size = 0
        async for record in consumer:
            records += 1
            size += len(record.value or b"")
            if records == 1_000:
                yield records, size
                records = size = 0
        yield records, size


async def write_records(
    topic: str, plan: RecordPlan, options: dict[str, Any], progress: ProgressDisplay
) -> BenchReport:
    """Write generated records. A latency is the time until the brokers have confirmed a record."""
    stopwatch, counted = Stopwatch(), _Tally()
    latencies: list[float] = []
    progress.expect(plan.records)
    samples: list[asyncio.Task[None]] = []
    every = -(-plan.records // _MAX_SAMPLES)
    value = bytes(plan.size)

    async def measure(delivery: RecordDelivery, sent_at: float) -> None:
        await delivery
        latencies.append(stopwatch.seconds() - sent_at)

    async with (
        Producer(**options) as producer,
        Scope("bench") as scope,
    ):
        scope.start(_show(progress, lambda: counted.records), "progress")
        async for number in _paced(plan, stopwatch):
            sent_at = stopwatch.seconds()
            delivery = await producer.send(topic, value)
            if number % every == 0:
                samples.append(scope.start(measure(delivery, sent_at), "latency"))
            counted.add(1, plan.size, stopwatch)
        for sample in samples:
            await sample
        await producer.flush()
    return counted.report(stopwatch, latencies)


async def measure_latency(
    topic: str,
    plan: RecordPlan,
    consumer_options: dict[str, Any],
    producer_options: dict[str, Any],
    progress: ProgressDisplay,
) -> BenchReport:
    """Write generated records, and read them at the same time.

    A latency is the time from `send` until the record is read. Records of other producers are
    ignored.
    """
    await _require_topic(topic, consumer_options)
    stopwatch, counted = Stopwatch(), _Tally()
    progress.expect(plan.records)
    sent_at: list[float] = []
    latencies: list[float] = []
    run = os.urandom(_RUN_BYTES)
    settings: dict[str, Any] = {"auto_offset_reset": "latest", **consumer_options}

    async def read(consumer: Consumer[Any, Any]) -> None:
        async for record in consumer:
            now, value = stopwatch.seconds(), record.value or b""
            if value.startswith(run):
                number = int.from_bytes(value[_RUN_BYTES:_HEADER_BYTES])
                latencies.append(now - sent_at[number])
                counted.add(1, len(value), stopwatch)
                if counted.records == plan.records:
                    return

    async with (
        Consumer(topic, **settings) as consumer,
        Producer(**producer_options) as producer,
        Scope("bench") as scope,
    ):
        await consumer.end_offsets(consumer.assignment)  # it is connected to all leaders
        reading = scope.start(read(consumer), "read")
        scope.start(_show(progress, lambda: counted.records), "progress")
        filler = bytes(max(0, plan.size - _HEADER_BYTES))
        async for number in _paced(plan, stopwatch):
            sent_at.append(stopwatch.seconds())
            await producer.send(topic, run + number.to_bytes(_NUMBER_BYTES) + filler)
        await producer.flush()
        async with asyncio.timeout(_ARRIVAL_SECONDS):
            await reading
    return counted.report(stopwatch, latencies)


async def _require_topic(topic: str, options: dict[str, Any]) -> None:
    """Raise UnknownTopicOrPartition if the topic does not exist.

    Otherwise a consumer would wait for the topic.
    """
    async with make_admin(options) as admin:
        await admin.describe_topics([topic])


async def _paced(plan: RecordPlan, stopwatch: Stopwatch) -> AsyncIterator[int]:
    """Yield the numbers 0, 1, 2 ... of the records to write, each when its record must be sent.

    The times follow from the plan's rate. Without a rate, wait for nothing.
    """
    began = stopwatch.seconds()
    for number in range(plan.records):
        if plan.rate is not None:
            early = began + number / plan.rate - stopwatch.seconds()
            if early > 0:
                await asyncio.sleep(early)
        yield number


async def _show(progress: ProgressDisplay, done: Callable[[], int]) -> None:
    shown = 0
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        progress.advance(done() - shown)
        shown = done()


async def _stop_after(consumer: Consumer[Any, Any], seconds: float) -> None:
    await asyncio.sleep(seconds)
    await consumer.stop()
