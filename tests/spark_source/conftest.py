"""One Spark for all tests of the data source, with Spark's own Kafka source to compare with."""

import asyncio
import os
import sys
from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from asyncconsumer.spark import KafkaSource
from asyncconsumer.testing.servers.spark import kafka_source_jars


def end_jvm() -> None:
    """A JVM outlives its sessions, and takes jars only when it starts: other tests need others."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # what it waits for
    gateway.proc.wait(timeout=60)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    end_jvm()
    jars = asyncio.run(kafka_source_jars())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # quick to start rather than quick in the end
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stopTimeout", "30s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(KafkaSource)
    session.sparkContext.parallelize([1], 1).map(abs).count()  # opens what Spark keeps open
    yield session
    session.stop()
    end_jvm()
