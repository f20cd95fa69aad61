"""The queries that `benchmarks.spark` measures, in one Spark session for all sources."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest.mock import patch

import psutil
from pyspark.sql import DataFrame, SparkSession

from asyncconsumer.spark.deploy.precompile import add_byte_code, python_zips, spark_home
from asyncconsumer.testing.servers.spark import THOROUGH, spark_session

if TYPE_CHECKING:
    from benchmarks._topics import Load

ASYNCCONSUMER: Final = "asyncconsumer"
OWN: Final = "Spark's own"
TUNED: Final = "Spark's own, tuned"

_TUNED: Final = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(4 * 2**20),
    "kafka.fetch.max.bytes": str(64 * 2**20),
    "kafka.receive.buffer.bytes": str(2**20),
}
SOURCES: Final = {
    ASYNCCONSUMER: ("asyncconsumer", {}),
    OWN: ("kafka", {}),
    TUNED: ("kafka", _TUNED),
}
_RECOMMENDED: Final = {"spark.python.unix.domain.socket.enabled": "true"}  # in README.md
_SUMS: Final = ("count(*) AS records", "sum(length(value)) AS bytes")

Phases = Mapping[str, int]
"""The milliseconds of each phase of a micro-batch, by Spark's names of the phases."""


class Queries:
    """The queries to measure. `contender` selects the source, and `load` the topic."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._folder = folder
        self._runs = 0

    def _options(self, contender: str, load: "Load") -> dict[str, str]:
        named = {"kafka.bootstrap.servers": self._servers, "subscribe": load.topic}
        return {**named, "startingOffsets": "earliest", **SOURCES[contender][1]}

    def _batch(self, contender: str, load: "Load") -> DataFrame:
        source = self._spark.read.format(SOURCES[contender][0])
        return source.options(**self._options(contender, load)).load()

    def noop(self, contender: str, load: "Load") -> None:
        self._batch(contender, load).write.format("noop").mode("overwrite").save()

    def aggregate(self, contender: str, load: "Load") -> None:
        (row,) = self._batch(contender, load).selectExpr(*_SUMS).collect()
        assert row["records"] == load.records, f"{contender}: {row} of {load.records}"

    def parquet(self, contender: str, load: "Load") -> None:
        self._batch(contender, load).write.mode("overwrite").parquet(str(self._folder / "table"))

    def write(self, contender: str, load: "Load") -> None:
        """Write records of 100 bytes, with keys, to the topic of the load."""
        rows = self._spark.range(0, load.records, 1, load.partitions).selectExpr(
            "cast(id AS string) AS key", "repeat('x', 100) AS value"
        )
        writer = rows.write.format(SOURCES[contender][0]).mode("append")
        writer = writer.option("kafka.bootstrap.servers", self._servers)
        writer.option("topic", load.topic).save()

    def stream_to_noop(self, contender: str, load: "Load", **limits: str) -> list[Phases]:
        """Read a topic as a stream without output, and return the phases of each micro-batch."""
        return self._stream(contender, load, "noop", **limits)

    def stream_to_aggregate(self, contender: str, load: "Load") -> list[Phases]:
        return self._stream(contender, load, "aggregate")

    def stream_to_parquet(self, contender: str, load: "Load") -> list[Phases]:
        return self._stream(contender, load, "parquet")

    def _stream(self, contender: str, load: "Load", to: str, **limits: str) -> list[Phases]:
        self._runs += 1
        source = self._spark.readStream.format(SOURCES[contender][0])
        data = source.options(**self._options(contender, load), **limits).load()
        if to == "aggregate":
            writer = data.selectExpr(*_SUMS).writeStream.outputMode("complete").format("noop")
        else:
            # a new folder, because Spark skips micro-batches that an output folder has already
            files = self._folder / f"streamed-{self._runs}"
            writer = data.writeStream.format(to).option("path", str(files))
        place = self._folder / f"checkpoint-{self._runs}"
        writer = writer.option("checkpointLocation", str(place)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        progress = [progress for progress in query.recentProgress if progress["numInputRows"]]
        assert sum(progress["numInputRows"] for progress in progress) == load.records, contender
        return [progress["durationMs"] for progress in progress]


class Sample(NamedTuple):
    """The records, the wall time and the CPU time of one run of one query, in seconds."""

    records: int
    seconds: float
    cpu: float


def timed(work: Callable[[], object], records: int) -> Sample:
    cpu, began = _cpu_seconds(), time.perf_counter()
    work()
    return Sample(records, time.perf_counter() - began, _cpu_seconds() - cpu)


def _cpu_seconds() -> float:
    """Return the CPU time of this process, of the JVM and of its Python workers.

    Ended child processes are included, and Kafka brokers are not.
    """
    result = 0.0
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            line = " ".join(process.cmdline())
            if "kafka.Kafka" not in line and "guard" not in line:
                result += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return result


@contextmanager
def session(jars: Sequence[Path], *, as_it_comes: bool) -> Iterator[SparkSession]:
    """Return a context manager with a Spark session for all sources.

    Unless `as_it_comes`, Spark's Python processes are set up as README.md recommends. This does not
    affect Spark's own source, which needs no Python.
    """
    retained = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
    config = {**THOROUGH, **retained, "spark.driver.memory": "2g"}
    with ExitStack() as stack:
        known = {"PYTHONDONTWRITEBYTECODE": ""}  # installed packages have byte code, too
        if not as_it_comes:
            config |= _RECOMMENDED
            known["SPARK_HOME"] = str(stack.enter_context(_compiled_home()))
        stack.enter_context(patch.dict(os.environ, known))
        spark = stack.enter_context(spark_session(config=config, jars=jars))
        from asyncconsumer.spark import KafkaSource

        spark.dataSource.register(KafkaSource)
        yield spark


@contextmanager
def _compiled_home() -> Iterator[Path]:
    """Return a context manager with a copy of Spark's folder with byte code of pyspark.

    `asyncconsumer spark-compile` adds the same byte code. The installed Spark is not changed.
    """
    home = spark_home()
    with tempfile.TemporaryDirectory(prefix="asyncconsumer-spark-") as folder:
        for file in home.iterdir():
            if file.name == "python":
                shutil.copytree(file, Path(folder, file.name))
            else:
                Path(folder, file.name).symlink_to(file)
        for archive in python_zips(Path(folder)):
            add_byte_code(archive)
        yield Path(folder)
