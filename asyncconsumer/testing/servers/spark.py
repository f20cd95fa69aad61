"""Spark for tests: sessions that start quickly, and the jars of its own Kafka source.

Those jars make it the peer to agree with, and to be measured against.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.ports import HOST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = "4.2.0"
"""The newest Spark whose Kafka source is on Maven Central."""

# by hand: it says that it depends on a token provider of its own version, which was never published
_JARS: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)

_SILENT: Final = Path(__file__).with_name("programs") / "silent.properties"
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Flags for Java: quick to start rather than quick in the end."""

_SETTINGS: Final = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.extraJavaOptions": f"{QUICK} -Dlog4j2.configurationFile={_SILENT}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

THOROUGH: Final = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_SILENT}"}
"""For a session that is measured: quick in the end."""


async def kafka_source_jars(progress: maven.Progress = maven.no_progress) -> list[Path]:
    """For `spark.jars`, fetched unless the cache has them; pyspark brings the other ones."""
    coordinates = [f"{jar}{maven.ALONE}" for jar in _JARS]
    return await maven.class_path(f"Spark {SPARK} Kafka source", coordinates, progress)


@contextmanager
def spark_session(
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
    *,
    jars: Sequence[Path] = (),
    python: str = sys.executable,
) -> "Iterator[SparkSession]":
    """A session in a JVM of its own, which ends with the block; `config` overrides what is quick.

    A JVM outlives its sessions otherwise, and takes jars and flags only when it starts. `python` is
    what the workers run.
    """
    from pyspark.sql import SparkSession

    _end_jvm()
    settings = {**_SETTINGS, "spark.jars": ",".join(map(str, jars)), **(config or {})}
    with _environment(PYSPARK_PYTHON=python, SPARK_LOCAL_IP=HOST):
        builder = SparkSession.builder.master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
            try:
                yield session
            finally:
                session.stop()
        finally:
            _end_jvm()


def _end_jvm() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no other door to it
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    gateway.shutdown()
    gateway.proc.stdin.close()  # what it waits for
    gateway.proc.wait(timeout=60)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
