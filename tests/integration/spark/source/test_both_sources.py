"""Spark's own source and this one in uncommon situations, and checkpoints between them."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from asyncconsumer.consumer.simple import SimpleConsumer
from asyncconsumer.spark import lag
from asyncconsumer.spark.source.spark_api import LIMITS_BATCHES
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import SASL_PLAIN_UNENCRYPTED, Kafka
from asyncconsumer.testing.servers.listeners import PASSWORDS
from asyncconsumer.types import TopicPartition
from tests.support.helpers import delete_records
from tests.support.spark_queries import OWN, TESTED, Make, Stream, fill, frame, rows, same

SOURCES = [OWN, TESTED]
PAIRS = list(product(SOURCES, SOURCES))
needs_limits = pytest.mark.skipif(not LIMITS_BATCHES, reason="Spark before 4.2 has no limits")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", ["read", "readStream"])
def test_a_wrong_option_is_refused_by_load(spark: SparkSession, kind: str, source: str) -> None:
    reader = getattr(spark, kind).format(source).option("kafka.bootstrap.servers", "localhost:1")
    with pytest.raises(Exception, match=r"(?i)got subscribe and|only one of .*subscribepattern"):
        reader.option("subscribe", "t").option("subscribePattern", "t").load()


@pytest.mark.parametrize("source", SOURCES)
async def test_a_timestamp_beyond_microseconds_is_an_error(
    spark: SparkSession, kafka: KafkaHandle, source: str
) -> None:
    topic = await kafka.topic(config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"v", timestamp_ms=1_700_000_000_000 * 10**6)
    with pytest.raises(Exception, match=rf"(?i)timestamp of {topic}|{topic}.* has timestamp"):
        frame(spark, source, kafka, subscribe=topic).collect()


async def test_offsets_with_a_zero_fraction_are_accepted(
    spark: SparkSession, kafka: KafkaHandle
) -> None:
    topic = await kafka.topic()
    await fill(kafka, topic, 5)
    own, tested = (
        rows(frame(spark, source, kafka, subscribe=topic, startingOffsets={topic: {"0": 2.0}}))
        for source in SOURCES
    )
    assert tested == own
    assert len(tested) == 3


@pytest.mark.parametrize("source", SOURCES)
async def test_each_partition_is_a_task_of_a_micro_batch(
    spark: SparkSession, kafka: KafkaHandle, tmp_path: Path, source: str
) -> None:
    topic = await kafka.topic(partitions=3)
    await fill(kafka, topic, 9, 3)
    reader = spark.readStream.format(source).option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    query = (
        reader.option("startingOffsets", "earliest")
        .load()
        .selectExpr("partition", "spark_partition_id() AS task")
        .writeStream.format("memory")
        .queryName(f"tasks_{source}")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert spark.table(f"tasks_{source}").distinct().count() == 3
    assert spark.table(f"tasks_{source}").select("task").distinct().count() == 3


@needs_limits
async def test_lag_of_each_micro_batch_equals_sparks_own_metrics(
    kafka: KafkaHandle, both: Make
) -> None:
    topic = await kafka.topic(partitions=2)
    await fill(kafka, topic, 20, 2)
    streams = both(subscribe=topic, maxOffsetsPerTrigger=6)
    same(streams)
    own, tested = streams
    metrics = [progress["sources"][0]["metrics"] for progress in own.progress]
    assert len(metrics) > 2
    reported = [{name: float(value) for name, value in each.items()} for each in metrics]
    assert [lag(progress) for progress in tested.progress] == reported
    assert [lag(progress) for progress in own.progress] == reported


# --- a pattern that sees no topic ----------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    """Yield a broker on which users see only the topics that they may describe."""
    kafka = Kafka(listeners=[SASL_PLAIN_UNENCRYPTED], acls=True)
    with asyncio.Runner() as runner:
        runner.run(kafka.start())
    yield kafka
    with asyncio.Runner() as runner:
        runner.run(kafka.stop())


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_query_continues_after_its_pattern_matched_no_topic(
    spark: SparkSession, guarded: Kafka, tmp_path: Path, source: str, fail_on_data_loss: str
) -> None:
    handle, topic = KafkaHandle(guarded, "guarded"), f"seen-{source}-{fail_on_data_loss}"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    options = {
        "kafka.bootstrap.servers": guarded.addresses(SASL_PLAIN_UNENCRYPTED),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{login} username="alice" password="{PASSWORDS["alice"]}";',
        "subscribePattern": f"{topic}.*",
        "failOnDataLoss": fail_on_data_loss,
    }

    async def change(start: int, *, allow: bool) -> None:
        await fill(handle, topic, 6, start=start)
        if allow:
            await guarded.admin.allow("alice", "topic", topic, "read", "describe")
        else:
            await guarded.admin.revoke("alice", "topic", topic)

    stream = Stream(spark, source, handle, tmp_path, **options)
    asyncio.run(guarded.admin.create_topic(topic))
    asyncio.run(guarded.admin.allow("alice", "group", "*", "read", "describe"))
    asyncio.run(change(0, allow=True))
    assert len(stream.run()) == 6
    asyncio.run(change(6, allow=False))
    assert len(stream.run()) == 6
    asyncio.run(change(12, allow=True))
    assert [row[4] for row in stream.run()] == list(range(18))


# --- the offsets that users and exporters read ---------------------------------------------------


@pytest.mark.parametrize("trigger", ["availableNow", "once", "processingTime"])
@pytest.mark.parametrize("source", SOURCES)
async def test_offsets_name_only_topics(
    spark: SparkSession, kafka: KafkaHandle, tmp_path: Path, source: str, trigger: str
) -> None:
    topic = await kafka.topic(partitions=2)
    stream = Stream(spark, source, kafka, tmp_path, subscribe=topic)
    for batch in (1, 2):
        await fill(kafka, topic, 10, 2, start=10 * (batch - 1))
        if trigger == "processingTime":
            query = stream.start()
            query.processAllAvailable()
            query.stop()
            stream.progress += [json.loads(report.json) for report in query.recentProgress]
        else:
            stream.run(trigger)
        assert len(stream.rows()) == 10 * batch

    logs = sorted((stream.folder / "checkpoint" / "offsets").glob("[0-9]*"))
    written = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
    assert written == [{topic: {"0": 5 * batch, "1": 5 * batch}} for batch in (1, 2)]
    (reports,) = zip(*(report["sources"] for report in stream.progress), strict=True)
    offsets = [report[f"{name}Offset"] for report in reports for name in ("start", "end", "latest")]
    assert {name for each in offsets if each for name in each} == {topic}


# --- checkpoints that go from one source to the other --------------------------------------------


@pytest.mark.parametrize("starting", ["latest", "earliest"])
async def test_a_planned_first_batch_of_sparks_own_source_is_repeated(
    kafka: KafkaHandle, both: Make, starting: str
) -> None:
    topic = await kafka.topic()
    stream, _ = both(subscribe=topic, startingOffsets=starting)
    await fill(kafka, topic, 5)
    stream.run()
    await fill(kafka, topic, 3, start=5)
    _plan_first_batch_again(stream.folder, {topic: {"0": 8}})
    await fill(kafka, topic, 2, start=8)
    stream.source = TESTED
    if starting == "latest":  # only Spark's own source knows this start
        with pytest.raises(StreamingQueryException, match=r"Run the query once with format"):
            stream.run()
        stream.source = OWN
    first = 5 if starting == "latest" else 0
    assert [row[4] for row in stream.run()] == list(range(first, 10))


def _plan_first_batch_again(folder: Path, end: dict[str, dict[str, int]]) -> None:
    """Change a checkpoint to that of a query which crashed in its first micro-batch."""
    shutil.rmtree(folder / "out")
    for name in ("commits", "offsets"):
        for file in (folder / "checkpoint" / name).iterdir():
            if (name, file.name) != ("offsets", "0"):
                file.unlink()
    log = folder / "checkpoint" / "offsets" / "0"
    *lines, _ = log.read_text().splitlines()
    log.write_text("\n".join([*lines, json.dumps(end)]))


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_lost_records_are_reported_after_a_change_of_the_source(
    kafka: KafkaHandle, both: Make, first: str, second: str
) -> None:
    topic = await kafka.topic()
    stream, _ = both(subscribe=topic)
    stream.source = first
    await fill(kafka, topic, 5)
    assert len(stream.run()) == 5
    await fill(kafka, topic, 10, start=5)
    await delete_records(kafka, topic, 0, before=12)
    stream.source = second
    with pytest.raises(StreamingQueryException):
        stream.run()
    result = stream.run(failOnDataLoss="false")
    assert [row[4] for row in result] == [*range(5), *range(12, 15)]


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_a_re_created_topic_is_reported_after_a_change_of_the_source(
    kafka: KafkaHandle, both: Make, first: str, second: str
) -> None:
    topic = await kafka.topic()
    stream, _ = both(subscribe=topic)
    stream.source = first
    await fill(kafka, topic, 10)
    assert len(stream.run()) == 10
    await kafka.admin.delete_topic(topic)
    await kafka.admin.create_topic(topic)
    await fill(kafka, topic, 5)
    stream.source = second
    with pytest.raises(StreamingQueryException):
        stream.run()


# --- offsets of a group --------------------------------------------------------------------------


async def offset_of(kafka: KafkaHandle, group: str, topic: str) -> int | None:
    """Return the offset that a group has committed in the first partition of a topic."""
    tp = TopicPartition(topic, 0)
    async with SimpleConsumer(kafka.bootstrap_servers) as simple:
        return (await simple.fetch_offsets(group, [tp]))[tp]


@needs_limits
@pytest.mark.parametrize("trigger", ["availableNow", "processingTime"])
async def test_commit_to_group_commits_the_written_offsets(
    kafka: KafkaHandle, both: Make, trigger: str
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    _, stream = both(subscribe=topic, commitToGroup=group)
    await fill(kafka, topic, 10)
    if trigger == "processingTime":
        query = stream.start()
        query.processAllAvailable()
        query.stop()
    else:
        stream.run(trigger)
    assert await offset_of(kafka, group, topic) == 10


@needs_limits
async def test_commit_to_group_commits_the_batch_of_once_in_the_next_run(
    kafka: KafkaHandle, both: Make
) -> None:
    """Check a trigger that plans one micro-batch.

    Spark confirms a micro-batch to a source when it plans the next one.
    """
    topic, group = await kafka.topic(), kafka.group()
    _, stream = both(subscribe=topic, commitToGroup=group)
    await fill(kafka, topic, 10)
    assert len(stream.run("once")) == 10
    assert await offset_of(kafka, group, topic) is None
    await fill(kafka, topic, 5, start=10)
    assert len(stream.run("once")) == 15
    assert await offset_of(kafka, group, topic) == 10
    stream.run("availableNow")
    assert await offset_of(kafka, group, topic) == 15


@pytest.mark.parametrize("trigger", ["availableNow", "once"])
async def test_commit_to_group_does_not_commit_a_failed_batch(
    spark: SparkSession, kafka: KafkaHandle, tmp_path: Path, trigger: str
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await fill(kafka, topic, 10)
    options = {"subscribe": topic, "commitToGroup": group, "startingOffsets": "earliest"}
    reader = spark.readStream.format(TESTED).options(**options)
    reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer = reader.load().selectExpr("raise_error('refused')").writeStream.format("noop")
    triggers: dict[str, Any] = {trigger: True}
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(**triggers).start()
    with pytest.raises(StreamingQueryException, match="refused"):
        query.awaitTermination(60)
    assert await offset_of(kafka, group, topic) is None
