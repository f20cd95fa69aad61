"""Errors of a feeder, and invalid options."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.errors import ConfigError, ConsumerTimeout, SinkFailed
from asyncconsumer.events import EventStream
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.feeder.feeder import SparkFeeder
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.feeder_tables import (
    Gate,
    batch,
    landed,
    numbers,
    reader,
)
from tests.support.helpers import until
from tests.support.real_consumer import partitions

pytestmark = pytest.mark.fast


async def committed(kafka: KafkaHandle, topic: str, group: str, count: int = 1) -> list[int | None]:
    """Return the committed offsets of the group, from another client."""
    places = partitions(topic, *range(count))
    async with reader(kafka, group=group) as consumer:
        await consumer.assign(places)
        result = await consumer.committed(places)
    return [result[place] for place in places]


async def observed(kafka: KafkaHandle, topic: str, group: str, offsets: list[int | None]) -> bool:
    return await committed(kafka, topic, group, len(offsets)) == offsets


def write(table: pa.Table, batch: FeedBatch) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda sink: SparkFeeder(sink), "either `sink` or `write`"),
        (
            lambda sink: SparkFeeder(sink, LandingFolder("x"), write=write),
            "either `sink` or `write`",
        ),
        (
            lambda sink: SparkFeeder(sink, LandingFolder("x"), spark=object()),
            "uses no Spark session",
        ),
        (lambda sink: SparkFeeder(sink, write=write, max_records=0), "`max_records` must be"),
        (lambda sink: SparkFeeder(sink, write=write, retries=-1), "`retries` must be"),
        (lambda sink: SparkFeeder(sink, write=write, columns=["valeu"]), "no such column"),
    ],
)
async def test_wrong_arguments_are_reported_by_the_constructor(
    make: Callable[[Any], SparkFeeder], message: str
) -> None:
    consumer = Consumer("t", bootstrap_servers="k:1", group_id="g", enable_auto_commit=False)
    with pytest.raises(ConfigError, match=message):
        make(consumer)


async def test_consumers_with_auto_commit_or_without_a_store_are_refused() -> None:
    auto = Consumer("t", bootstrap_servers="k:1", group_id="g")
    with pytest.raises(ConfigError, match="commit_policy='manual'"):
        SparkFeeder(auto, write=write)
    nowhere = Consumer(bootstrap_servers="k:1", partitions=[TopicPartition("t", 0)])
    with pytest.raises(ConfigError, match="stores no offsets"):
        SparkFeeder(nowhere, write=write)


class EndingConsumer:
    """A consumer whose stream ends, as with `stop_at`, after ten records of two partitions each."""

    is_open = True
    commits = False
    assignment = frozenset(partitions("t", 0, 1))

    def __init__(self, error: Exception | None = None) -> None:
        delivery = SimpleNamespace(on_poison="raise")
        self.config = SimpleNamespace(auto_commit=False, delivery=delivery)
        self.recorder = Recorder()
        self.error = error

    def listen(self, listener: object) -> None:
        """Do nothing, because there are no events."""

    def events(self) -> EventStream:
        return EventStream()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Do nothing, because the position is not used."""

    def progress(self) -> dict[TopicPartition, object]:
        return {}

    async def arrow(self, **_: object) -> AsyncIterator[pa.RecordBatch]:
        for number in range(2):
            part = batch("t", number, 0, range(number * 10, number * 10 + 10)).parts
            for records in part[TopicPartition("t", number)].table.to_batches():
                yield records
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("limit", [4, 1000])
async def test_run_writes_all_records_before_it_returns_at_the_end(
    tmp_path: Path, limit: int
) -> None:
    consumer: Any = EndingConsumer()
    async with SparkFeeder(consumer, LandingFolder(tmp_path), max_records=limit) as feeder:
        await feeder.run()
        assert numbers(landed(tmp_path)) == list(range(20))
    assert numbers(landed(tmp_path)) == list(range(20))


async def test_a_consumer_timeout_is_raised_after_all_records_are_written(tmp_path: Path) -> None:
    consumer: Any = EndingConsumer(error=ConsumerTimeout(500))
    with pytest.raises(ConsumerTimeout):
        async with SparkFeeder(consumer, LandingFolder(tmp_path)) as feeder:
            await feeder.run()
    assert numbers(landed(tmp_path)) == list(range(20))


async def test_an_error_of_reading_is_raised_unchanged(tmp_path: Path) -> None:
    consumer: Any = EndingConsumer(error=ValueError("pyarrow says no"))
    with pytest.raises(ValueError, match="says no"):
        async with SparkFeeder(consumer, LandingFolder(tmp_path)) as feeder:
            await feeder.run()


class OpenConsumer(EndingConsumer):
    """A consumer that stays open without further records."""

    async def arrow(self, **_: object) -> AsyncIterator[pa.RecordBatch]:
        async for records in super().arrow():
            yield records
        await asyncio.Event().wait()


async def test_an_error_of_another_task_ends_the_block_without_writes(
    tmp_path: Path,
) -> None:
    """Check collected records. They are not written, because no task can be started any more."""
    consumer: Any = OpenConsumer()

    async def fail() -> None:
        raise ValueError("a mistake")

    async def feed(feeder: SparkFeeder) -> None:
        async with feeder:
            await until(lambda: feeder._collector.size > 0)
            feeder._scope.start(fail(), "fail")
            await feeder.run()

    feeder = SparkFeeder(consumer, LandingFolder(tmp_path), max_wait_ms=60_000)
    with pytest.raises(ExceptionGroup) as caught:
        await feed(feeder)
    assert caught.group_contains(ValueError, match="a mistake")
    assert not caught.group_contains(RuntimeError)
    assert feeder.stats().in_flight == 0


async def test_a_failed_last_write_is_reported(tmp_path: Path) -> None:
    consumer: Any = EndingConsumer()
    gate = Gate(tmp_path, asyncio.get_running_loop())

    def full() -> None:
        raise OSError(28, "No space left on device")

    gate.trouble = full
    with pytest.raises(SinkFailed, match="No space"):
        async with SparkFeeder(consumer, gate, retries=0) as feeder:
            await feeder.run()


class UserOffsets:
    """A store of offsets that is never called."""

    async def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        raise NotImplementedError

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        raise NotImplementedError


async def test_a_write_function_needs_offsets_in_kafka(tmp_path: Path) -> None:
    manual: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    zookeeper: dict[str, Any] = {
        **manual,
        "group_protocol": "zookeeper",
        "zookeeper_connect": "z:1",
    }
    own: Consumer[Any, Any] = Consumer(
        "t", bootstrap_servers="k:1", offsets=UserOffsets(), **manual
    )
    in_zookeeper: Consumer[Any, Any] = Consumer("t", **zookeeper)
    in_both: Consumer[Any, Any] = Consumer("t", offsets_storage="kafka", **zookeeper)
    for consumer in (own, in_zookeeper, in_both):
        with pytest.raises(ConfigError, match=r"or store offsets in Kafka"):
            SparkFeeder(consumer, write=write)
        SparkFeeder(consumer, LandingFolder(tmp_path))
    in_kafka: Consumer[Any, Any] = Consumer(
        "t", offsets_storage="kafka", dual_commit_enabled=False, **zookeeper
    )
    SparkFeeder(in_kafka, write=write)
