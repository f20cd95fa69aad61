"""A real Spark session that reads written files, and that functions of feeders write with."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers.spark import spark_session
from tests.support.feeder_tables import SCHEMA, make_feeder
from tests.support.real_consumer import send


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[1]") as session:
        yield session


async def test_a_file_stream_reads_the_landing_folder(
    kafka: KafkaHandle, tmp_path: Path, spark: SparkSession
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(300), 2)
    async with make_feeder(kafka, topic, group, LandingFolder(tmp_path)) as feeder:
        await feeder.caught_up()
    schema = spark.createDataFrame(SCHEMA.empty_table()).schema
    query = (
        spark.readStream.schema(schema)
        .parquet(str(tmp_path))
        .writeStream.format("memory")
        .queryName("seen")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.table("seen").selectExpr("cast(value as string) as v", "*").collect()
    assert sorted(int(row.v) for row in rows) == list(range(300))
    assert {row.topic for row in rows} == {topic}
    assert {type(row.timestamp).__name__ for row in rows} == {"datetime"}


async def test_a_function_gets_data_frames_without_pandas(
    kafka: KafkaHandle, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # importing it fails
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(100), 2)
    ids: list[str] = []

    def append(frame: DataFrame, batch: FeedBatch) -> None:
        ids.append(batch.id)
        frame.write.mode("overwrite").parquet(str(tmp_path / batch.id))

    async with make_feeder(kafka, topic, group, spark=spark, write=append) as feeder:
        await feeder.caught_up()
    rows = spark.read.parquet(*(str(tmp_path / each) for each in ids))
    values = rows.selectExpr("cast(value as string) as v").collect()
    assert sorted(int(row.v) for row in values) == list(range(100))
