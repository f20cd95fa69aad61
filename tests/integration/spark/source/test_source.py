"""Equality with Spark's own source: the same query gives the same rows.

These tests are one module, because a Spark session starts slowly, and one process runs a module.
"""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent
from pyspark.sql.streaming.query import StreamingQuery

from asyncconsumer.consumer.simple import SimpleConsumer
from asyncconsumer.spark import LagListener, TopicLag, lag
from asyncconsumer.spark.source.spark_api import LIMITS_BATCHES, VERSION
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.types import TopicPartition
from examples import spark_stream
from tests.spark.options.test_java_pattern import NAMES, PATTERNS
from tests.support.helpers import delete_records, produce, until
from tests.support.protobuf_messages import Line, Order, descriptor_set
from tests.support.spark_queries import (
    OWN,
    T0,
    TESTED,
    Make,
    World,
    fill,
    frame,
    made,
    rows,
    same,
)

Options = Callable[[World], dict[str, Any]]

needs_filters = pytest.mark.skipif(
    VERSION.startswith("4.0"), reason="Spark 4.0 has no filter pushdown"
)
needs_limits = pytest.mark.skipif(not LIMITS_BATCHES, reason="Spark before 4.2 has no limits")


@pytest.fixture(scope="module")
def world(_kafka_server: Kafka) -> World:
    return made(KafkaHandle(_kafka_server, "spark"))


def _three(world: World, *places: int) -> dict[str, Any]:
    return {world.plain: {str(number): place for number, place in enumerate(places)}}


SAME: dict[str, tuple[Options, int]] = {
    "all": (lambda w: {"subscribe": w.plain}, 90),
    "earliest and latest": (
        lambda w: {"subscribe": w.plain, "startingOffsets": "earliest", "endingOffsets": "latest"},
        90,
    ),
    "two topics": (lambda w: {"subscribe": f"{w.plain}, {w.other}"}, 110),
    "a pattern": (
        lambda w: {"subscribePattern": f"{w.plain[:-1]}[{w.plain[-1]}{w.other[-1]}]"},
        110,
    ),
    "a pattern matches anywhere": (lambda w: {"subscribePattern": f"{w.plain[5:]}$"}, 90),
    "manually assigned partitions": (lambda w: {"assign": {w.plain: [0, 2]}}, 60),
    "offsets": (
        lambda w: {
            "subscribe": w.plain,
            "startingOffsets": _three(w, 2, -2, 7),
            "endingOffsets": _three(w, 5, -1, 8),
        },
        34,
    ),
    "an empty range": (
        lambda w: {
            "subscribe": w.plain,
            "startingOffsets": _three(w, 2, 2, 2),
            "endingOffsets": _three(w, 2, 2, 2),
        },
        0,
    ),
    "an empty topic": (lambda w: {"subscribe": w.empty}, 0),
    "from a timestamp": (lambda w: {"subscribe": w.plain, "startingTimestamp": T0 + 30_000}, 60),
    "to a timestamp": (lambda w: {"subscribe": w.plain, "endingTimestamp": T0 + 30_000}, 30),
    "to a timestamp in the future": (
        lambda w: {"subscribe": w.plain, "endingTimestamp": T0 + 10**9},
        90,
    ),
    "timestamps of partitions": (
        lambda w: {
            "subscribe": w.plain,
            "startingOffsetsByTimestamp": _three(w, T0, T0 + 30_001, T0 + 60_000),
            "endingOffsetsByTimestamp": _three(w, T0 + 9_000, T0 + 60_000, T0 + 10**9),
        },
        23,
    ),
    "a timestamp precedes offsets": (
        lambda w: {
            "subscribe": w.plain,
            "startingOffsets": "earliest",
            "startingOffsetsByTimestamp": _three(w, T0, T0, T0),
            "startingTimestamp": T0 + 30_000,
        },
        60,
    ),
    "timestamps of partitions precede offsets": (
        lambda w: {
            "subscribe": w.plain,
            "startingOffsets": "earliest",
            "startingOffsetsByTimestamp": _three(w, T0, T0 + 30_000, T0 + 60_000),
        },
        60,
    ),
    "a timestamp without records, strategy latest": (
        lambda w: {
            "subscribe": w.plain,
            "startingTimestamp": T0 + 10**9,
            "startingOffsetsByTimestampStrategy": "latest",
        },
        0,
    ),
    "minPartitions": (lambda w: {"subscribe": w.plain, "minPartitions": 7}, 90),
    "maxRecordsPerPartition": (lambda w: {"subscribe": w.plain, "maxRecordsPerPartition": 8}, 90),
    "headers": (lambda w: {"subscribe": w.plain, "includeHeaders": "true"}, 90),
    "timestamps of the broker": (lambda w: {"subscribe": w.stamped}, 10),
    "transactions, uncommitted": (lambda w: {"subscribe": w.transactions}, 20),
    "transactions, committed": (
        lambda w: {"subscribe": w.transactions, "kafka.isolation.level": "read_committed"},
        10,
    ),
    "a trimmed topic": (lambda w: {"subscribe": w.trimmed}, 20),
    "deleted records without failOnDataLoss": (
        lambda w: {
            "subscribe": w.trimmed,
            "startingOffsets": {w.trimmed: {"0": 3}},
            "failOnDataLoss": "false",
        },
        20,
    ),
    "options of Java's consumer": (
        lambda w: {
            "subscribe": w.plain,
            "groupIdPrefix": "mine",
            "kafka.max.poll.records": 10,
            "kafka.fetch.max.bytes": 100_000,
            "kafka.max.partition.fetch.bytes": 2_000,
            "kafkaConsumer.pollTimeoutMs": 10_000,
        },
        90,
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_rows_equal_those_of_sparks_own_source(
    spark: SparkSession, world: World, case: str
) -> None:
    of, count = SAME[case]
    own, tested = (frame(spark, source, world.kafka, **of(world)) for source in (OWN, TESTED))
    assert tested.schema == own.schema
    results = rows(tested)
    assert results == rows(own)
    assert len(results) == count


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_as_in_java(spark: SparkSession, pattern: str) -> None:
    jvm: Any = SparkContext._jvm
    java = jvm.java.util.regex.Pattern.compile(pattern)
    assert [name for name in NAMES if java.matcher(name).find()] == PATTERNS[pattern]


def test_a_compacted_topic_is_read_as_by_sparks_own_source(
    spark: SparkSession, world: World
) -> None:
    # a fixed end, because the log cleaner may be running
    limits = {"endingOffsets": {world.compacted: {"0": 57}}, "subscribe": world.compacted}
    own, tested = (rows(frame(spark, source, world.kafka, **limits)) for source in (OWN, TESTED))
    assert tested == own
    assert len(tested) < 20


@pytest.mark.parametrize("options", [{"minPartitions": 7}, {"minPartitions": 2}, {}])
def test_the_number_of_tasks_equals_that_of_sparks_own_source(
    spark: SparkSession, world: World, options: dict[str, Any]
) -> None:
    own, tested = (
        frame(spark, source, world.kafka, subscribe=world.plain, **options).rdd.getNumPartitions()
        for source in (OWN, TESTED)
    )
    assert tested == own


def test_small_ranges_share_a_task_on_request(spark: SparkSession, world: World) -> None:
    def tasks(**options: Any) -> int:
        data = frame(spark, TESTED, world.kafka, subscribe=world.plain, **options)
        return data.rdd.getNumPartitions()

    assert tasks() == 3
    assert tasks(recordsPerTask=20_000) == 1
    assert tasks(maxRecordsPerPartition=8) == 12  # of 30 each


REFUSED: dict[str, tuple[Options, str]] = {
    "no topic": (lambda w: {}, "got none of them"),
    "two options for topics": (
        lambda w: {"subscribe": w.plain, "subscribePattern": "x"},
        "got subscribe and subscribePattern",
    ),
    "to start at the end": (
        lambda w: {"subscribe": w.plain, "startingOffsets": "latest"},
        "`startingOffsets` can't be latest for batch queries",
    ),
    "to end at the start": (
        lambda w: {"subscribe": w.plain, "endingOffsets": "earliest"},
        "`endingOffsets` can't be earliest for batch queries",
    ),
    "to start one partition at the end": (
        lambda w: {"subscribe": w.plain, "startingOffsets": _three(w, 0, -1, 0)},
        "can't be latest",
    ),
    "to end one partition at the start": (
        lambda w: {"subscribe": w.plain, "endingOffsets": _three(w, 1, -2, 1)},
        "can't be earliest",
    ),
    "some of the partitions": (
        lambda w: {"subscribe": w.plain, "startingOffsets": _three(w, 0, 1)},
        "must name all partitions",
    ),
    "timestamps of some of the partitions": (
        lambda w: {"subscribe": w.plain, "startingOffsetsByTimestamp": _three(w, T0)},
        "must name all partitions",
    ),
    "invalid JSON": (lambda w: {"subscribe": w.plain, "startingOffsets": "first"}, "not JSON"),
    "a timestamp after all records": (
        lambda w: {"subscribe": w.plain, "startingTimestamp": T0 + 10**9},
        "has no record at or after",
    ),
    "a start after the end": (
        lambda w: {
            "subscribe": w.plain,
            "startingOffsets": _three(w, 5, 0, 0),
            "endingOffsets": _three(w, 3, 1, 1),
        },
        "is after its ending offset",
    ),
    "deleted records": (
        lambda w: {"subscribe": w.trimmed, "startingOffsets": {w.trimmed: {"0": 3}}},
        "7 offsets before 10 are gone",
    ),
    "auto.offset.reset": (
        lambda w: {"subscribe": w.plain, "kafka.auto.offset.reset": "earliest"},
        "cannot be set",
    ),
    "a missing topic": (lambda w: {"subscribe": "nowhere"}, "'nowhere'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_sparks_own_source_refuses_are_refused(
    spark: SparkSession, world: World, case: str
) -> None:
    of, message = REFUSED[case]
    options = {**of(world), "fetchOffset.numRetries": 1, "fetchOffset.retryIntervalMs": 1}
    with pytest.raises(Exception):  # noqa: B017, PT011 - several classes of Java
        rows(frame(spark, OWN, world.kafka, **options))
    with pytest.raises(PySparkException, match=message):
        rows(frame(spark, TESTED, world.kafka, **options))


def test_an_end_offset_after_the_log_is_refused(spark: SparkSession, world: World) -> None:
    # Spark's own source waits for this offset for two minutes
    options = {"subscribe": world.other, "endingOffsets": {world.other: {"0": 99}}}
    with pytest.raises(PySparkException, match="the log ends at 20"):
        rows(frame(spark, TESTED, world.kafka, **options))
    options["failOnDataLoss"] = "false"
    assert len(rows(frame(spark, TESTED, world.kafka, **options))) == 20


def test_a_schema_can_select_columns(spark: SparkSession, world: World) -> None:
    narrow = (
        spark.read.format(TESTED)
        .option("kafka.bootstrap.servers", world.kafka.bootstrap_servers)
        .option("subscribe", world.plain)
        .schema("offset bigint, value binary, partition int, topic string")
        .load()
    )
    whole = frame(spark, OWN, world.kafka, subscribe=world.plain)
    assert rows(narrow) == rows(whole.select("offset", "value", "partition", "topic"))
    for schema, message in (
        ("value string", "type of column value is binary, not string"),
        ("valeu binary", "Unknown column 'valeu'"),
    ):
        with pytest.raises(PySparkException, match=message):
            (
                spark.read.format(TESTED)
                .option("kafka.bootstrap.servers", world.kafka.bootstrap_servers)
                .option("subscribe", world.plain)
                .schema(schema)
                .load()
                .collect()
            )


def test_isolation_levels_do_not_share_a_client(spark: SparkSession, world: World) -> None:
    for level, count in (("read_committed", 10), ("read_uncommitted", 20), ("read_committed", 10)):
        options = {"subscribe": world.transactions, "kafka.isolation.level": level}
        assert frame(spark, TESTED, world.kafka, **options).count() == count


@needs_filters
def test_filters_are_pushed_down_if_spark_does_so(spark: SparkSession, world: World) -> None:
    since = f"timestamp >= timestamp_millis({T0 + 60_000}) and key is not null"
    queries = ["partition = 1", "offset > 20 and partition in (0, 2)", since, "partition = 9"]
    options = {"subscribe": world.plain, "recordsPerTask": 1}

    def loaded(**more: Any) -> DataFrame:
        return frame(spark, TESTED, world.kafka, **options, **more)

    whole = [rows(loaded().where(query)) for query in queries]
    assert loaded(pushFilters=True).where("partition = 1").rdd.getNumPartitions() == 3
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert [rows(loaded(pushFilters=True).where(query)) for query in queries] == whole
        assert loaded(pushFilters=True).where("partition = 1").rdd.getNumPartitions() == 1
        once = loaded()  # Spark keeps one plan for the following queries
        assert rows(once.where("partition = 1")) == whole[0]
        assert once.count() == 90
        assert once.where("partition = 0").union(once.where("partition = 1")).count() == 60
        assert {row["partition"] for row in once.where("partition < 2").collect()} == {0, 1}
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.mark.parametrize("source", [OWN, TESTED])
def test_each_execution_of_a_frame_reads_the_current_records(
    spark: SparkSession, kafka: KafkaHandle, source: str
) -> None:
    topic, prefix = asyncio.run(kafka.topic(partitions=2)), f"later-{source}"
    data = frame(spark, source, kafka, subscribePattern=f"^({topic}|{prefix}.*)$", minPartitions=3)
    data.createOrReplaceTempView("records")
    assert data.count() == 0
    asyncio.run(fill(kafka, topic, 10, 2))
    assert [row[4] for row in rows(data.select("*"))] == [*range(5), *range(5)]
    asyncio.run(delete_records(kafka, topic, 0, before=3))
    assert data.count() == spark.table("records").count() == 7
    asyncio.run(kafka.admin.add_partitions(topic, 3))
    asyncio.run(fill(kafka, topic, 9, 3, start=10))
    asyncio.run(kafka.admin.create_topic(f"{prefix}-topic"))
    asyncio.run(fill(kafka, f"{prefix}-topic", 4))
    assert data.count() == spark.sql("select * from records").count() == 20
    asyncio.run(kafka.admin.delete_topic(f"{prefix}-topic"))
    assert len({row[2:5] for row in rows(data.select("*"))}) == 16


@pytest.mark.parametrize("source", [OWN, TESTED])
def test_each_execution_checks_that_offsets_name_all_partitions(
    spark: SparkSession, kafka: KafkaHandle, source: str
) -> None:
    topic = asyncio.run(kafka.topic())
    asyncio.run(fill(kafka, topic, 5))
    data = frame(spark, source, kafka, subscribe=topic, startingOffsets={topic: {"0": 2}})
    assert data.count() == 3
    asyncio.run(fill(kafka, topic, 2, start=5))
    assert data.count() == 5
    asyncio.run(kafka.admin.add_partitions(topic, 2))
    with pytest.raises(Exception, match=r"Expected .* got|Specified: .* Assigned:"):
        data.count()


@pytest.mark.parametrize("source", [OWN, TESTED])
def test_a_joined_table_is_read_again_for_each_micro_batch(
    spark: SparkSession, kafka: KafkaHandle, tmp_path: Path, source: str
) -> None:
    orders, customers = asyncio.run(kafka.topic()), asyncio.run(kafka.topic())
    table = frame(spark, source, kafka, subscribe=customers).select("value", "partition")
    stream = spark.readStream.format(source).options(
        **{"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest"},
        subscribe=orders,
    )
    query = (
        stream.load()
        .join(table.withColumnRenamed("partition", "known"), "value", "left")
        .writeStream.format("memory")
        .queryName(f"joined_{source}")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        for number in range(3):
            for topic in (customers, orders):
                servers = {"bootstrap_servers": kafka.bootstrap_servers}
                asyncio.run(produce(topic, [b"%d" % number], **servers))
            query.processAllAvailable()
        results = spark.table(f"joined_{source}").select("value", "known").collect()
        assert sorted(map(tuple, results)) == [(b"0", 0), (b"1", 0), (b"2", 0)]
    finally:
        query.stop()


def test_timestamps_do_not_depend_on_spark_sql_timestamp_type(
    spark: SparkSession, world: World
) -> None:
    usual = frame(spark, TESTED, world.kafka, subscribe=world.plain)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        tested = frame(spark, TESTED, world.kafka, subscribe=world.plain)
        assert tested.schema == frame(spark, OWN, world.kafka, subscribe=world.plain).schema
        assert rows(tested) == rows(usual)
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_json_values_become_columns(spark: SparkSession, kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic())
    values = [b'{"id": %d, "tags": ["a"]}' % number for number in range(5)] + [b"oops"]
    asyncio.run(produce(topic, values, bootstrap_servers=kafka.bootstrap_servers))
    typed = (
        spark.read.format(TESTED)
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .option("valueFormat", "json")
        .schema("value struct<id: bigint, tags: array<string>>, _corrupt_record string")
    )
    results = typed.load().select("value.id", "value.tags", "_corrupt_record").collect()
    assert [tuple(row) for row in results] == [
        *((number, ["a"], None) for number in range(5)),
        (None, None, "oops"),
    ]
    assert typed.option("mode", "dropMalformed").load().count() == 5
    with pytest.raises(PySparkException, match="is not the json of the schema"):
        typed.option("mode", "failFast").load().collect()


def test_protobuf_values_become_columns(
    spark: SparkSession, kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, file = asyncio.run(kafka.topic()), tmp_path / "shop.desc"
    file.write_bytes(descriptor_set())
    order = Order(id=1, color="RED", lines=[Line(sku="a")], stock={"x": 0}, large=2**64 - 1)
    order.at.FromSeconds(1_700_000_000)
    order.took.FromSeconds(90)
    values = [order.SerializeToString(), b"oops", Order().SerializeToString()]
    asyncio.run(produce(topic, values, bootstrap_servers=kafka.bootstrap_servers))
    typed = (
        spark.read.format(TESTED)
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .option("valueFormat", "protobuf")
        .option("messageName", "Order")
        .option("descFilePath", str(file))
    )
    assert typed.load().count() == 3
    file.unlink()  # an existing query does not need the file
    typed = typed.option("descFilePath", "").option(
        "messageName", "tests.support.protobuf_messages.Order"
    )
    first, *rest = typed.load().select("offset", "value").collect()
    assert first.value.asDict() == {
        **dict.fromkeys(first.value.asDict()),
        "id": 1,
        "color": "RED",
        "lines": [Row(sku="a", count=None)],
        "numbers": [],
        "colors": [],
        "times": [],
        "byid": {},
        "stock": {"x": 0},
        "large": -1,
        "at": datetime.fromtimestamp(1_700_000_000),  # noqa: DTZ006 - as Spark has it in Python
        "took": timedelta(seconds=90),
    }
    assert [row.value is None for row in rest] == [True, False]
    declared = typed.schema("value struct<id: bigint, color: int>, _corrupt_record string")
    results = declared.load().select("value.id", "value.color", "_corrupt_record").collect()
    assert [tuple(row) for row in results] == [
        (1, 1, None),
        (None, None, "oops"),
        (None, None, None),
    ]
    assert declared.option("mode", "dropMalformed").load().count() == 2
    with pytest.raises(PySparkException, match=r"@1 is not the protobuf of the schema"):
        declared.option("mode", "failFast").load().collect()


# --- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["read", "readStream"])
def test_a_wrong_option_is_reported_at_load(spark: SparkSession, kind: str) -> None:
    reader = getattr(spark, kind).format(TESTED).option("kafka.bootstrap.servers", "localhost:1")
    reader = reader.option("subscribe", "t").option("startingOffsets", "first")
    for hidden in ("false", "true"):
        spark.conf.set("spark.sql.execution.pyspark.udf.hideTraceback.enabled", hidden)
        with pytest.raises(PySparkException, match="`startingOffsets` must be JSON") as caught:
            reader.load()
        assert ("Traceback" in str(caught.value)) == (hidden == "false")


def test_options_of_other_components_are_ignored(spark: SparkSession, world: World) -> None:
    options = {"path": "/x", "checkpointLocation": "/x", "topic": "t", "kafka.acks": "all"}
    own, tested = (
        rows(frame(spark, source, world.kafka, subscribe=world.other, **options))
        for source in (OWN, TESTED)
    )
    assert tested == own


@pytest.mark.parametrize("source", [OWN, TESTED])
def test_timeouts_of_options_limit_the_wait_for_brokers(spark: SparkSession, source: str) -> None:
    timeouts = {"kafka.default.api.timeout.ms": "1500", "kafka.request.timeout.ms": "1000"}
    data = (
        spark.read.format(source)
        .options(**timeouts, **{"kafka.bootstrap.servers": "localhost:1"})
        .options(**{"fetchOffset.numRetries": "1", "subscribe": "t"})
        .load()
    )
    began = time.monotonic()
    with pytest.raises(Exception, match=r"(?i)localhost:1|timed? ?out"):
        data.collect()
    assert time.monotonic() - began < 30


def test_a_catalog_table_is_refused_because_spark_drops_its_options(
    spark: SparkSession, world: World
) -> None:
    options = {"kafka.bootstrap.servers": world.kafka.bootstrap_servers, "subscribe": world.other}
    text = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    spark.sql(f"create temporary view viewed using {TESTED} options ({text})")
    assert spark.table("viewed").count() == 20
    try:
        spark.sql(f"create table listed using {TESTED} options ({text})")
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            spark.sql("select * from listed").collect()
    finally:
        spark.sql("drop table if exists listed")


@needs_limits
async def test_a_restarted_query_continues_at_its_checkpoint(
    kafka: KafkaHandle, both: Make
) -> None:
    topic = await kafka.topic(partitions=2)
    streams = both(subscribe=topic, maxOffsetsPerTrigger=35, includeHeaders="true")
    await fill(kafka, topic, 40, 2)
    assert len(same(streams)) == 40
    assert len(streams[1].batches) > 1  # of up to 35 records
    await kafka.admin.add_partitions(topic, 3)
    await fill(kafka, topic, 30, 3, start=40)
    assert len(same(streams)) == 70  # including the new partition from its beginning
    assert len(streams[1].run()) == 70  # no new and no repeated rows


async def test_a_query_continues_at_a_checkpoint_of_sparks_own_source(
    kafka: KafkaHandle, both: Make
) -> None:
    topic = await kafka.topic(partitions=2)
    own, _ = both(subscribe=topic)
    await fill(kafka, topic, 20, 2)
    assert len(own.run()) == 20
    await fill(kafka, topic, 10, 2, start=20)
    own.source = TESTED  # only the format's name changes
    assert len({row[3:5] for row in own.run()}) == len(own.rows()) == 30


async def test_a_checkpoint_can_be_used_by_both_sources_in_turn(
    kafka: KafkaHandle, both: Make
) -> None:
    topic = await kafka.topic(partitions=2)
    _, stream = both(subscribe=topic)
    for number, source in enumerate((TESTED, OWN, TESTED, TESTED, OWN)):
        stream.source = source
        await fill(kafka, topic, 10, 2, start=10 * number)
        assert len({row[3:5] for row in stream.run()}) == len(stream.rows()) == 10 * (number + 1)


@pytest.mark.parametrize("count", [15, 10])  # more than were read, and as many
async def test_a_topic_that_was_re_created_between_runs_is_reported(
    kafka: KafkaHandle, both: Make, count: int
) -> None:
    topic = await kafka.topic()
    _, tested = both(subscribe=topic)
    await fill(kafka, topic, 10)
    assert len(tested.run()) == 10
    assert len(tested.run()) == 10  # no new record is no loss
    await kafka.admin.delete_topic(topic)
    await kafka.admin.create_topic(topic)
    await fill(kafka, topic, count)
    with pytest.raises(StreamingQueryException, match="was deleted and re-created, its id was"):
        tested.run()
    assert len(tested.run(failOnDataLoss="false")) == count
    await fill(kafka, topic, 5, start=count)
    assert len(tested.run()) == count + 5


async def test_a_failed_first_batch_is_repeated_from_its_start(
    spark: SparkSession, kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic = await kafka.topic(partitions=2)
    await fill(kafka, topic, 4, 2)

    def start(source: str, mode: str = "") -> StreamingQuery:
        reader = spark.readStream.format(source).options(
            **{"kafka.bootstrap.servers": kafka.bootstrap_servers}, subscribe=topic
        )
        if mode:
            schema = "topic string, partition int, offset bigint, value struct<id: int>"
            reader = reader.schema(schema).options(valueFormat="json", mode=mode)
        return (
            reader.load()  # from the latest offset, by default
            .select("topic", "partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )

    query = start(TESTED, "FAILFAST")
    try:
        await until(lambda: query.status["message"] == "Waiting for data to arrive")
        await fill(kafka, topic, 6, 2, start=4)
        with pytest.raises(StreamingQueryException, match="is not the json"):
            query.awaitTermination(60)
    finally:
        query.stop()
    for source, mode in ((TESTED, "PERMISSIVE"), (OWN, "")):  # both sources can continue
        await fill(kafka, topic, 2, 2, start=10)
        query = start(source, mode)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    results = rows(spark.read.parquet(str(tmp_path / "out")))
    assert [row[1:] for row in results] == [
        (number, offset) for number in (0, 1) for offset in range(2, 7)
    ]


async def test_deleted_records_are_reported_or_left_out(kafka: KafkaHandle, both: Make) -> None:
    topic = await kafka.topic()
    streams = both(subscribe=topic)
    await fill(kafka, topic, 10)
    same(streams)
    await fill(kafka, topic, 20, start=10)
    await delete_records(kafka, topic, 0, before=25)
    for stream in streams:
        with pytest.raises(StreamingQueryException) as caught:
            stream.run()
    assert "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE" in str(caught.value)
    assert "15 offsets before 25 are gone" in str(caught.value)
    assert [row[4] for row in same(streams, failOnDataLoss="false")] == [*range(10), *range(25, 30)]


async def test_deleted_and_re_created_topics_are_reported_or_left_out(
    kafka: KafkaHandle, both: Make
) -> None:
    retained, gone, recreated = [await kafka.topic() for _ in range(3)]
    streams = both(subscribePattern=f"{retained}|{gone}|{recreated}")
    for topic in (retained, gone, recreated):
        await fill(kafka, topic, 5)
    assert len(same(streams)) == 15
    await kafka.admin.delete_topic(gone)
    await kafka.admin.delete_topic(recreated)
    await kafka.admin.create_topic(recreated)
    await fill(kafka, recreated, 2)
    await fill(kafka, retained, 5, start=5)
    with pytest.raises(StreamingQueryException) as caught:
        streams[1].run()
    assert "KAFKA_DATA_LOSS.PARTITIONS_DELETED" in str(caught.value)
    assert f"{gone}[0] were deleted" in str(caught.value)
    assert len(same(streams, failOnDataLoss="false")) == 20
    await fill(kafka, recreated, 8, start=2)
    assert len(same(streams, failOnDataLoss="false")) == 28


@needs_limits
async def test_a_running_query_reads_new_partitions_and_reports_its_lag(
    spark: SparkSession, kafka: KafkaHandle, both: Make
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    _, tested = both(subscribe=topic, commitToGroup=group, maxOffsetsPerTrigger=1000)
    await fill(kafka, topic, 10, 2)
    query = tested.start()
    try:
        query.processAllAvailable()
        await kafka.admin.add_partitions(topic, 3)
        await fill(kafka, topic, 30, 3, start=10)
        query.processAllAvailable()
        assert len(tested.rows()) == 40
        await fill(kafka, topic, 3, 3)
        query.processAllAvailable()
        progress = query.lastProgress
        assert progress is not None
        (source,) = json.loads(progress.json)["sources"]
        assert source["latestOffset"] == {topic: {"0": 16, "1": 16, "2": 11}}
        assert source["endOffset"] == source["latestOffset"]
        assert lag(progress)["maxOffsetsBehindLatest"] == 0
        listener = LagListener()  # not added: the threads of py4j for listeners stay
        listener.onQueryProgress(QueryProgressEvent(progress))
        assert listener.lag() == {str(query.id): {topic: TopicLag(0, 0.0)}}
    finally:
        query.stop()
    assert await committed(kafka, group, topic, 3) == [16, 16, 11]


@needs_limits
async def test_commit_to_group_has_the_offsets_of_the_last_micro_batch(
    kafka: KafkaHandle, both: Make
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    _, tested = both(subscribe=topic, commitToGroup=group)
    await fill(kafka, topic, 10, 2)
    assert len(tested.run()) == 10
    assert await committed(kafka, group, topic, 2) == [5, 5]  # after its only micro-batch
    await fill(kafka, topic, 10, 2, start=10)
    assert len(tested.run()) == 20
    assert await committed(kafka, group, topic, 2) == [10, 10]


async def committed(kafka: KafkaHandle, group: str, topic: str, count: int) -> list[int | None]:
    places = [TopicPartition(topic, number) for number in range(count)]
    async with SimpleConsumer(kafka.bootstrap_servers) as simple:
        result = await simple.fetch_offsets(group, places)
    return [result[tp] for tp in places]


@needs_limits
async def test_a_micro_batch_waits_for_min_offsets_per_trigger(
    kafka: KafkaHandle, both: Make
) -> None:
    topic = await kafka.topic()
    _, tested = both(subscribe=topic, minOffsetsPerTrigger=20, maxTriggerDelay="10m")
    await fill(kafka, topic, 5)
    query = tested.start()
    try:
        query.processAllAvailable()  # the first micro-batch does not wait
        assert len(tested.rows()) == 5
        await fill(kafka, topic, 10, start=5)
        query.processAllAvailable()
        assert len(tested.rows()) == 5
        await fill(kafka, topic, 10, start=15)
        query.processAllAvailable()
        assert len(tested.rows()) == 25
    finally:
        query.stop()


def test_ending_offsets_of_a_stream_are_refused(spark: SparkSession, kafka: KafkaHandle) -> None:
    data = (
        spark.readStream.format(TESTED)
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", asyncio.run(kafka.topic()))
        .option("endingOffsets", "latest")
        .load()
    )
    assert isinstance(data, DataFrame)
    with pytest.raises(Exception, match="`endingOffsets` applies to batch queries only"):
        data.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(30)


def test_the_example_continues_at_its_checkpoint(
    spark: SparkSession, kafka: KafkaHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = asyncio.run(kafka.topic())
    servers = kafka.bootstrap_servers
    folders = str(tmp_path / "table"), str(tmp_path / "checkpoints")
    for amount in (1, 2):
        order = json.dumps({"customer": "ann", "amount": amount}).encode()
        asyncio.run(produce(topic, [order], bootstrap_servers=servers))
        spark_stream.run(spark, servers, topic, *folders)
    assert [row.amount for row in spark.read.parquet(folders[0]).orderBy("amount").collect()] == [
        1,
        2,
    ]
    assert "ann" in capsys.readouterr().out
