"""The stream reader for Spark 4.0 and 4.1, called in the order of these versions."""

import asyncio
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.source import parse
from asyncconsumer.spark.source import worker_loop as worker_loop_module
from asyncconsumer.spark.source.earlier_streams import EarlierStreamReader, refuse_limits
from asyncconsumer.spark.source.task import Task
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.spark_queries import fill


@pytest.fixture(autouse=True)
def _closed_loop() -> Iterator[None]:
    yield
    worker_loop_module.worker_loop().close()
    worker_loop_module._loop_of_process.cache_clear()


def reader(kafka: KafkaHandle, **options: str) -> EarlierStreamReader:
    connection = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    return EarlierStreamReader(parse(connection | options, streaming=True), StructType())


def counts(tasks: object) -> int:
    assert isinstance(tasks, list)
    assert all(isinstance(task, Task) for task in tasks)
    return sum(offsets.end - offsets.start for task in tasks for offsets in task.ranges)


def test_a_query_from_the_earliest_offset_reads_each_record_once(kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic(partitions=2))
    asyncio.run(fill(kafka, topic, 10, 2))
    stream = reader(kafka, subscribe=topic, startingOffsets="earliest")
    first = stream.latestOffset()
    assert counts(stream.partitions(stream.initialOffset(), first)) == 10
    assert stream.latestOffset() == first  # so Spark plans no batch
    asyncio.run(fill(kafka, topic, 4, 2, start=10))
    second = stream.latestOffset()
    assert counts(stream.partitions(first, second)) == 4
    again = reader(kafka, subscribe=topic, startingOffsets="earliest")  # after a restart
    assert counts(again.partitions(first, second)) == 4
    assert again.latestOffset() == second


def test_a_query_from_the_latest_offset_does_not_end_before_its_start(kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 5))
    stream = reader(kafka, subscribe=topic)
    end = stream.latestOffset()
    asyncio.run(fill(kafka, topic, 3, start=5))
    start = stream.initialOffset()  # Spark calls it after the end
    assert counts(stream.partitions(start, end)) == 0
    assert counts(stream.partitions(end, stream.latestOffset())) == 3

    again = reader(kafka, subscribe=topic)
    with pytest.raises(ConfigError, match="first micro-batch"):
        again.partitions(again.initialOffset(), end)


def test_a_pattern_needs_a_topic_at_the_start(kafka: KafkaHandle) -> None:
    with pytest.raises(ConfigError, match="`subscribePattern` matches no topic"):
        reader(kafka, subscribePattern=kafka.group()).latestOffset()


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_limits_of_micro_batches_are_refused(name: str) -> None:
    least = {"kafka.bootstrap.servers": "k:1", "subscribe": "t"}
    refuse_limits(parse(least, streaming=True))
    with pytest.raises(ConfigError, match=rf"`{name}` needs Spark 4\.2"):
        refuse_limits(parse(least | {name: "5"}, streaming=True))
