"""Spark for tests: fast sessions, and the jars of Spark's own Kafka source.

Spark's own Kafka source is the reference for compatibility and for benchmarks.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.ports import HOST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = "4.2.0"
"""The newest Spark whose Kafka source is on Maven Central."""
_OF_OLDER: Final = {"4.0": "4.0.4", "4.1": "4.1.3"}
SCALA: Final = "2.13"
"""The Scala version of pyspark's jars. A worker that does not know it searches a Spark build."""

# listed by hand, because its POM needs a token provider of its own version, which does not exist
_KAFKA_SOURCE: Final = f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}"
_JARS: Final = (
    f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA}:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
# fetched without their dependencies, which pyspark contains
_DELTA: Final = (
    f"io.delta:delta-spark_4.2_{SCALA}:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "io.delta:delta-kernel-api:4.4.0",
    "io.delta:delta-kernel-defaults:4.4.0",
)
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Settings of a session that has the jars of Delta, for small tables."""

_SILENT: Final = Path(__file__).with_name("programs") / "silent.properties"
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java flags with which a program starts faster, and runs slower after a while."""

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
"""Settings of a session for measurements, in which Java optimizes fully."""

EXECUTORS: Final = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
}
"""Settings of a session that starts its own executors, which are small."""


async def kafka_source_jars(progress: maven.Progress = maven.no_progress) -> list[Path]:
    """Return the paths of the jars of Spark's own Kafka source that pyspark does not contain."""
    minor = metadata.version("pyspark").rpartition(".")[0]
    version = _OF_OLDER.get(minor, SPARK)
    jars = [f"{_KAFKA_SOURCE}:{version}", *_JARS]
    return await _alone(f"Spark {version} Kafka source", jars, progress)


async def delta_jars(progress: maven.Progress = maven.no_progress) -> list[Path]:
    """Return the paths of the jars for Delta tables, for the setting `spark.jars`."""
    return await _alone(f"Delta for Spark {SPARK}", _DELTA, progress)


async def _alone(name: str, jars: Sequence[str], progress: maven.Progress) -> list[Path]:
    return await maven.class_path(name, [f"{jar}{maven.ALONE}" for jar in jars], progress)


@contextmanager
def spark_session(
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
    *,
    jars: Sequence[Path] = (),
    python: str = sys.executable,
) -> "Iterator[SparkSession]":
    """Return a context manager that runs a Spark session in a new JVM.

    `config` overrides the default settings, which make the session fast. `python` is the
    interpreter of the workers. The JVM ends with the block, because a later session may need other
    jars and flags, which a JVM reads only at its start.
    """
    from pyspark.sql import SparkSession

    _end_jvm()
    settings = {**_SETTINGS, "spark.jars": ",".join(map(str, jars)), **(config or {})}
    known = {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": HOST}
    with _home(master) as home, _environment(**known, **home):
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


@contextmanager
def _home(master: str) -> Iterator[dict[str, str]]:
    """Return a context manager that yields environment variables for a Spark master.

    For a local cluster, they have a temporary SPARK_HOME, because its workers create folders there.
    Otherwise the context manager yields an empty dict.
    """
    if not master.startswith("local-cluster"):
        yield {}
        return
    import pyspark

    with tempfile.TemporaryDirectory(prefix="asyncconsumer-spark-") as folder:
        for file in Path(pyspark.__file__).parent.iterdir():
            Path(folder, file.name).symlink_to(file)
        yield {"SPARK_HOME": folder, "SPARK_SCALA_VERSION": SCALA}


def _end_jvm() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no public access
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    gateway.shutdown()
    gateway.proc.stdin.close()  # the gateway's process ends when its input is closed
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
