"""A stream of the source into a Parquet table, while executors or brokers are killed."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from asyncconsumer.spark import ship
from asyncconsumer.testing.servers.spark import EXECUTORS, spark_session
from tests.support.bare_python import bare_python
from tests.support.feeder_tables import repeated
from tests.support.helpers import until
from tests.support.kills.feeder import A_RUN, PARTITIONS, KafkaLike
from tests.support.real_consumer import send

CLUSTER: Final = "local-cluster[2,1,1024]"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class Table:
    """The table of a streaming query, which restarts from its checkpoint."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, folder: Path) -> None:
        self.restarts = 0
        self._spark = spark
        self._options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "200",
        }
        self._folder = folder
        self._query: Any = self._start()

    def _start(self) -> Any:
        frame = self._spark.readStream.format("asyncconsumer").options(**self._options).load()
        return (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start(str(self._folder / "table"))
        )

    def restart_if_ended(self) -> None:
        """Restart the query if it ended, as an operator would."""
        if not self._query.isActive:
            self.restarts += 1
            self._query = self._start()

    def batches(self) -> int:
        """Return the number of batches, as a measure of progress."""
        return len(list(self._folder.glob("checkpoint/commits/*")))

    def grew(self, before: int) -> bool:
        """Return whether there are more than `before` batches, and restart an ended query."""
        self.restart_if_ended()
        return self.batches() > before

    def held(self) -> list[tuple[int, int, int]]:
        """Return the values, each with its partition and offset."""
        try:
            rows = self._spark.read.parquet(str(self._folder / "table")).collect()
        except PySparkException:  # the table does not exist yet
            return []
        return sorted((int(row.value), row.partition, row.offset) for row in rows)

    def stop(self) -> None:
        self._query.stop()


@contextmanager
def cluster_session(folder: Path) -> Iterator[SparkSession]:
    """Yield a session whose executors get the package by `ship`, including later ones."""
    python = bare_python(folder / "bare")
    with spark_session(CLUSTER, EXECUTORS, python=str(python)) as spark:
        ship(spark)
        spark.sparkContext.parallelize([1, 2], 2).map(
            abs
        ).count()  # opens sockets that Spark keeps open
        yield spark


def executors() -> list[psutil.Process]:
    """Return the executors of this process's sessions."""
    results = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(_EXECUTOR in word for word in process.cmdline()):
                results.append(process)
        except psutil.Error:  # the process ended meanwhile
            continue
    return results


def kill_one(chance: Random) -> str:
    """Kill an executor, or sometimes one of its Python workers. Return the kind."""
    victim = chance.choice(executors())
    kind = "executor"
    try:
        workers = [process for process in victim.children(recursive=True) if process.is_running()]
    except psutil.Error:
        workers = []
    if workers and chance.random() < 0.3:
        victim, kind = chance.choice(workers), "Python worker"
    try:
        os.kill(victim.pid, signal.SIGKILL)
    except ProcessLookupError:
        kind = "nothing"
    return kind


async def kill_executors(
    kafka: KafkaLike, table: Table, topic: str, runs: int, chance: Random
) -> dict[str, int]:
    """Kill executors, check that each record is in the table once, and count the kills by kind."""
    killed: dict[str, int] = {}
    for run in range(runs):
        before = table.batches()
        await send(kafka, topic, range(run * A_RUN, (run + 1) * A_RUN), PARTITIONS)
        await until(lambda before=before: table.grew(before), 300)  # type: ignore[misc]
        await asyncio.sleep(chance.uniform(0, 1))
        kind = kill_one(chance)
        killed[kind] = killed.get(kind, 0) + 1
        await until(lambda: len(executors()) == 2, 300)
    await settled(table, runs * A_RUN)
    return killed


async def settled(table: Table, records: int) -> None:
    """Wait until the table has all records, and check that it has each one once."""
    async with asyncio.timeout(300):
        while len(set(values := [value for value, _, _ in table.held()])) < records:
            table.restart_if_ended()
            await asyncio.sleep(0.5)
    assert repeated(values) == []
    assert values == list(range(records))
