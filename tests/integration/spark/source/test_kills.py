"""Streaming queries while executors or brokers are killed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio
from pyspark.sql import SparkSession

from asyncconsumer.spark import KafkaSource
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.testing.servers.spark import spark_session
from tests.support.kills.brokers import create, kill_brokers
from tests.support.kills.feeder import PARTITIONS, Feeders
from tests.support.kills.source import Table, cluster_session, kill_executors


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkSession]:
    with cluster_session(tmp_path) as spark:
        yield spark


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    with spark_session("local[1]") as session:
        session.dataSource.register(KafkaSource)
        session.sparkContext.parallelize([1], 1).map(
            abs
        ).count()  # opens sockets that Spark keeps open
        yield session


@pytest_asyncio.fixture
async def brokers() -> AsyncIterator[Kafka]:
    async with Kafka(brokers=3) as kafka:
        yield kafka


async def test_each_record_is_written_once_though_an_executor_is_killed(
    kafka: KafkaHandle, tmp_path: Path, cluster: SparkSession
) -> None:
    topic = await kafka.topic(partitions=PARTITIONS)
    table = Table(cluster, kafka.bootstrap_servers, topic, tmp_path)
    await kill_executors(kafka, table, topic, 1, Random(1))
    table.stop()


async def test_each_record_is_written_once_though_a_broker_is_killed(
    brokers: Kafka, tmp_path: Path, spark: SparkSession
) -> None:
    topic, sink = "killed", tmp_path / "sink"
    sink.mkdir()
    await create(brokers, topic)
    with Feeders(brokers.bootstrap_servers, topic, "g", "landing", sink) as feeders:
        table = Table(spark, brokers.bootstrap_servers, topic, tmp_path)
        results = await kill_brokers(brokers, feeders, table, 1, Random(1))
        table.stop()
    assert results.feeder_restarts == 0
    assert results.query_restarts == 0
