"""One Spark for all tests of the data source, with Spark's own Kafka source to compare with."""

import asyncio
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from asyncconsumer.spark import KafkaSource
from asyncconsumer.testing.servers.spark import kafka_source_jars, spark_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    jars = asyncio.run(kafka_source_jars())
    with spark_session(jars=jars) as session:
        session.dataSource.register(KafkaSource)
        session.sparkContext.parallelize([1], 1).map(abs).count()  # opens what Spark keeps open
        yield session
