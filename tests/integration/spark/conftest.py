"""A Spark for all tests of the data source, with Spark's own Kafka source for comparison."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from asyncconsumer.spark import KafkaSource
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers.spark import kafka_source_jars, spark_session
from tests.support.spark_queries import OWN, TESTED, Make, Stream


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    jars = asyncio.run(kafka_source_jars())
    with spark_session(jars=jars) as session:
        session.dataSource.register(KafkaSource)
        session.sparkContext.parallelize([1], 1).map(
            abs
        ).count()  # opens sockets that Spark keeps open
        yield session


@pytest.fixture
def both(spark: SparkSession, kafka: KafkaHandle, tmp_path: Path) -> Make:
    def make(**options: Any) -> list[Stream]:
        return [Stream(spark, source, kafka, tmp_path, **options) for source in (OWN, TESTED)]

    return make
