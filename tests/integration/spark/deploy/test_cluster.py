"""A cluster whose executors do not have the package until it is shipped to them."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from asyncconsumer.spark import KafkaSource, ship
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers.spark import EXECUTORS, spark_session
from asyncconsumer.testing.servers.spark_cluster import SparkCluster
from tests.support.bare_python import bare_python
from tests.support.real_consumer import send

RECORDS = 2_000


class Topic(NamedTuple):
    spark: SparkSession
    options: dict[str, str]

    def rows(self) -> DataFrame:
        return self.spark.read.format("asyncconsumer").options(**self.options).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def used(spark: SparkSession) -> list[tuple[str, str, int]]:
    """Return the decoder and its origin in each executor."""

    def look(_: int) -> tuple[str, str, int]:
        import importlib
        import os

        from asyncconsumer.records import decoding

        codecs = importlib.import_module("cramjam").__file__  # can be imported after the package
        assert "/asyncconsumer-" in str(codecs)
        return decoding.name, str(decoding.__file__), os.getppid()

    return spark.sparkContext.parallelize(range(8), 8).map(look).collect()


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    running = SparkCluster()
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


@pytest.fixture(scope="module")
def spark(
    cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("bare")
    python = bare_python(folder / "python", without=("aiokafka", "cramjam"))
    with contextlib.chdir(folder):
        config = {**EXECUTORS, "spark.task.maxFailures": "1"}
        with spark_session(cluster.master, config, python=str(python)) as session:
            session.dataSource.register(KafkaSource)
            session.sparkContext.parallelize([1, 2], 2).map(
                abs
            ).count()  # opens sockets that Spark keeps open
            yield session


@pytest.fixture
def topic(kafka: KafkaHandle, spark: SparkSession) -> Topic:
    name = asyncio.run(kafka.topic(partitions=4))
    asyncio.run(send(kafka, name, range(RECORDS), 4))
    return Topic(spark, {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name})


def test_a_shipped_package_reads_and_writes_on_executors(
    spark: SparkSession, topic: Topic, tmp_path: Path, cluster: SparkCluster, kafka: KafkaHandle
) -> None:
    with pytest.raises(PySparkException, match="No module named 'a"):
        used(spark)
    with pytest.raises(PySparkException, match="No module named 'a"):
        values(topic.rows())

    ship(spark)

    assert values(topic.rows()) == list(range(RECORDS))
    query = (
        spark.readStream.format("asyncconsumer")
        .options(**topic.options, startingOffsets="earliest")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "table"))
    )
    query.awaitTermination()
    assert values(spark.read.parquet(str(tmp_path / "table"))) == list(range(RECORDS))
    copies = asyncio.run(kafka.topic(partitions=2))
    connection = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    writer = spark.read.parquet(str(tmp_path / "table")).drop("topic", "partition").write
    writer.format("asyncconsumer").mode("append").options(**connection, topic=copies).save()
    assert values(topic._replace(options=connection | {"subscribe": copies}).rows()) == list(
        range(RECORDS)
    )
    results = used(spark)
    assert {name for name, _, _ in results} == {"compiled"}
    assert all("/worker-" in file and "/asyncconsumer-" in file for _, file, _ in results)
    assert len({executor for _, _, executor in results}) == 2
    assert "PureDecoderWarning" not in cluster.logs()
