"""Equality with Spark's own sink: the same rows are written, and the same are refused.

These tests are one module, because a Spark session starts slowly, and one process runs a module.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from asyncconsumer.testing.handles import KafkaHandle
from tests.support.spark_queries import OWN, TESTED, as_text, fill, frame

HEADERS = "array<struct<key:string,value:binary>>"


def written(spark: SparkSession, kafka: KafkaHandle, topic: str) -> list[tuple[Any, ...]]:
    """Return the records of a topic in the order of the partitions, without their timestamps."""
    read = frame(spark, OWN, kafka, subscribe=topic, includeHeaders=True)
    return [
        (
            row.partition,
            _bytes(row.key),
            _bytes(row.value),
            [(key, _bytes(value)) for key, value in row.headers or ()],
        )
        for row in sorted(read.collect(), key=lambda row: (row.partition, row.offset))
    ]


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)  # a bytearray before Spark 4.1


def write(data: DataFrame, sink: str, kafka: KafkaHandle, **options: Any) -> None:
    writer = data.write.format(sink).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer.mode("append").options(**as_text(options)).save()


ROWS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "keys select partitions": (
        "key string, value string",
        [(f"key {number}", f"välue {number}") for number in range(50)],
    ),
    "bytes": (
        "key binary, value binary",
        [(bytearray([number, 255]), bytearray(number)) for number in range(20)],
    ),
    "nulls and empty values": (
        "key binary, value string",
        [(bytearray(b"k"), None), (bytearray(b""), ""), (bytearray(b"k"), "")],
    ),
    "partitions": (
        "value string, partition int",
        [(f"v{number}", number % 3) for number in range(9)],
    ),
    "headers": (
        f"key string, value string, headers {HEADERS}",
        [
            ("a", "1", [("h", bytearray(b"1")), ("h", None), ("", bytearray(b""))]),
            ("b", "2", None),
            ("c", "3", []),
        ],
    ),
    "columns that are not written": (
        "more date, value string, partition int, timestamp timestamp, offset bigint",
        [(None, "v", 1, None, 5)],
    ),
    "no rows": ("value string", []),
}


@pytest.mark.parametrize("case", ROWS)
def test_written_records_equal_those_of_sparks_own_sink(
    spark: SparkSession, kafka: KafkaHandle, case: str
) -> None:
    schema, data = ROWS[case]
    results = []
    for sink in (OWN, TESTED):
        topic = asyncio.run(kafka.topic(partitions=3))
        write(spark.createDataFrame(data, schema).coalesce(1), sink, kafka, topic=topic)
        results.append(written(spark, kafka, topic))
    assert results[1] == results[0]
    assert len(results[1]) == len(data)


def test_the_topic_option_overrides_the_topics_of_rows(
    spark: SparkSession, kafka: KafkaHandle
) -> None:
    first, second = (asyncio.run(kafka.topic()) for _ in range(2))
    data = spark.createDataFrame(
        [(first, "a"), (second, "b"), (first, "c")], "topic string, value string"
    ).coalesce(1)
    write(data, TESTED, kafka)
    assert [row[2] for row in written(spark, kafka, first)] == [b"a", b"c"]
    assert [row[2] for row in written(spark, kafka, second)] == [b"b"]
    write(data, TESTED, kafka, topic=f" {second} ", subscribe="ignored")
    assert [row[2] for row in written(spark, kafka, second)] == [b"b", b"a", b"b", b"c"]


REFUSED: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], str]] = {
    "no topic": (
        "value string",
        ("v",),
        {},
        "topic option required when no 'topic' attribute is present. Use the topic option for",
    ),
    "no value": ("key string", ("k",), {"topic": "t"}, "Required attribute 'value' not found"),
    "another name of the value": (
        "Value string",
        ("v",),
        {"topic": "t"},
        "Required attribute 'value' not found",
    ),
    "a number as value": (
        "value int",
        (1,),
        {"topic": "t"},
        "value attribute unsupported type int. value must be a(n) string or binary",
    ),
    "a number as key": (
        "key bigint, value string",
        (1, "v"),
        {"topic": "t"},
        "key attribute unsupported type bigint. key must be a(n) string or binary",
    ),
    "bytes as topic": (
        "topic binary, value string",
        (bytearray(b"t"), "v"),
        {},
        "topic attribute unsupported type binary. topic must be a(n) string",
    ),
    "a long partition": (
        "partition bigint, value string",
        (1, "v"),
        {"topic": "t"},
        "partition attribute unsupported type bigint. partition must be a(n) int",
    ),
    "a map of headers": (
        "headers map<string,binary>, value string",
        ({}, "v"),
        {"topic": "t"},
        "headers attribute unsupported type map<string,binary>. headers must be a(n) array<struct",
    ),
    "a null topic": (
        "topic string, value string",
        (None, "v"),
        {},
        "null topic",  # the rest of the message differs in Spark 4.0
    ),
    "a negative partition": (
        "partition int, value string",
        (-1, "v"),
        {"topic": "t"},
        "Invalid partition: -1. Partition number should always be non-negative or null.",
    ),
    "a serializer": (
        "value string",
        ("v",),
        {"topic": "t", "kafka.key.serializer": "x"},
        "is not supported as keys are serialized with ByteArraySerializer.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_have_the_messages_of_sparks_own_sink(
    spark: SparkSession, kafka: KafkaHandle, case: str
) -> None:
    schema, row, options, message = REFUSED[case]
    if options:
        options = options | {"topic": asyncio.run(kafka.topic())}
    for sink in (OWN, TESTED):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - several classes, some of Java
            write(spark.createDataFrame([row], schema), sink, kafka, **options)
        assert message in str(caught.value), sink


def test_modes_other_than_append_are_refused(spark: SparkSession, kafka: KafkaHandle) -> None:
    data = spark.createDataFrame([("v",)], "value string")
    topic = asyncio.run(kafka.topic())
    for mode, message in (
        ("overwrite", "Save mode Overwrite not allowed for Kafka"),
        ("ignore", '"Append"'),  # Spark refuses before it calls the sink
        ("error", '"Append"'),
    ):
        writer = data.write.format(TESTED).mode(mode).option("topic", topic)
        with pytest.raises(PySparkException, match=message):
            writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).save()


def test_a_refused_record_fails_its_query_only(spark: SparkSession, kafka: KafkaHandle) -> None:
    topic = asyncio.run(kafka.topic(config={"max.message.bytes": "1000"}))
    data = spark.createDataFrame([("small",), ("x" * 5000,)], "value string").coalesce(1)
    with pytest.raises(PySparkException, match="RecordTooLarge"):
        write(data, TESTED, kafka, topic=topic)
    write(data.limit(1), TESTED, kafka, topic=topic)
    assert {row[2] for row in written(spark, kafka, topic)} == {b"small"}


def test_a_restarted_stream_copies_each_record_once(
    spark: SparkSession, kafka: KafkaHandle, tmp_path: Path
) -> None:
    """Check a query that continues at its checkpoint."""
    source, copies = (asyncio.run(kafka.topic(partitions=2)) for _ in range(2))

    def copy() -> None:
        read = spark.readStream.format(TESTED).option("startingOffsets", "earliest")
        read = read.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        data = read.option("subscribe", source).option("includeHeaders", "true").load()
        writer = data.drop("topic").writeStream.format(TESTED).option("topic", copies)
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer = writer.option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    for count in (100, 50):
        asyncio.run(fill(kafka, source, count, 2))
        copy()
        assert written(spark, kafka, copies) == written(spark, kafka, source)


def test_complete_mode_appends_each_result(
    spark: SparkSession, kafka: KafkaHandle, tmp_path: Path
) -> None:
    source, topic = (asyncio.run(kafka.topic()) for _ in range(2))
    asyncio.run(fill(kafka, source, 9))

    def start(mode: str) -> StreamingQuery:
        read = spark.readStream.format(TESTED).option("startingOffsets", "earliest")
        read = read.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        data = read.option("subscribe", source).load().groupBy("partition").count()
        data = data.selectExpr("cast(count as string) as value")
        writer = data.writeStream.format(TESTED).outputMode(mode).option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        writer = writer.option("checkpointLocation", str(tmp_path / mode))
        return writer.trigger(availableNow=True).start()

    start("complete").awaitTermination()
    assert [row[2] for row in written(spark, kafka, topic)] == [b"9"]
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        start("update").awaitTermination()  # Spark refuses this for all Python sinks
