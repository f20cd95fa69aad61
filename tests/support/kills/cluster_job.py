"""A large batch job on a standalone cluster of two workers, one of which is killed.

    python -m tests.support.kills.cluster_job [--records 10000000]

The executors get the package from `asyncconsumer.spark.ship`, as documented.
"""

import argparse
import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path

from asyncconsumer.spark import KafkaSource, ship
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.testing.servers.spark import EXECUTORS, spark_session
from asyncconsumer.testing.servers.spark_cluster import SparkCluster
from benchmarks._topics import Load, fill_with_copies, plain
from tests.support.bare_python import bare_python

PARTITIONS = 8


def copy_with_a_kill(kafka: Kafka, load: Load, cluster: SparkCluster, folder: Path) -> str:
    """Copy the topic to a table while a worker is killed. Return what the table has."""
    python = bare_python(folder / "python", without=("aiokafka", "cramjam"))
    with (
        contextlib.chdir(folder),  # workers must not import the package from here
        spark_session(cluster.master, EXECUTORS, python=str(python)) as spark,
    ):
        spark.dataSource.register(KafkaSource)
        ship(spark)
        end = {load.topic: dict.fromkeys(map(str, range(PARTITIONS)), load.records // PARTITIONS)}
        data = (
            spark.read.format("asyncconsumer")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", load.topic)
            .option("endingOffsets", str(end).replace("'", '"'))
            .option("maxRecordsPerPartition", str(max(load.records // 40, 1)))
            .load()
        )
        table = str(folder / "table")
        killed = threading.Event()

        def kill_a_worker() -> None:
            while not list(Path(table).rglob("*.parquet")):
                if killed.wait(0.05):
                    return
            asyncio.run(cluster.nodes[1].kill())
            killed.set()

        killer = threading.Thread(target=kill_a_worker)
        killer.start()
        data.select("topic", "partition", "offset", "value").write.parquet(table)
        in_time = killed.is_set()
        killed.set()
        killer.join()
        rows = spark.read.parquet(table)
        count, distinct = rows.count(), rows.select("partition", "offset").distinct().count()
    assert in_time, "the job ended before a worker was killed: use more --records"
    assert (count, distinct) == (load.records, load.records)
    return f"{count:,} rows, {distinct:,} distinct, one of two workers killed"


async def run(records: int) -> str:
    load = Load("large job", records, plain, partitions=PARTITIONS)
    with tempfile.TemporaryDirectory() as folder:
        async with Kafka() as kafka, SparkCluster() as cluster:
            await fill_with_copies(kafka, load)
            return await asyncio.to_thread(copy_with_a_kill, kafka, load, cluster, Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    print(asyncio.run(run(parser.parse_args().records)))


if __name__ == "__main__":
    main()
