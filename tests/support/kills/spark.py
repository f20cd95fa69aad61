"""Kill -9 at random moments. The table must have each record exactly once.

    python -m tests.support.kills.spark --of feeder|executor|broker
        [--runs 50] [--seed N] [--sink NAME ...]

`feeder` kills one of two feeders, for each kind of sink. `executor` kills one of two executors, or
a Python worker, of a streaming query. `broker` kills one of three brokers of a feeder and a query.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from random import Random

from asyncconsumer.spark import KafkaSource
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.testing.servers.spark import spark_session
from tests.support.kills import brokers as broker_kills
from tests.support.kills.feeder import PARTITIONS, SINKS, Feeders, kill_for_long, place_of
from tests.support.kills.source import Table, cluster_session, kill_executors


async def executor(runs: int, seed: int, folder: Path) -> str:
    async with Kafka() as kafka:
        topic = "executors"
        await kafka.admin.create_topic(topic, partitions=PARTITIONS)
        with cluster_session(folder) as spark:
            table = Table(spark, kafka.bootstrap_servers, topic, folder)
            killed = await kill_executors(kafka, table, topic, runs, Random(seed))
            table.stop()
    return f"{killed}, {table.restarts} restarts of the query, each record once"


async def broker(runs: int, seed: int, folder: Path, kind: str) -> str:
    async with Kafka(brokers=3) as kafka:
        topic, servers = "brokers", kafka.bootstrap_servers
        await broker_kills.create(kafka, topic)
        (folder / "sink").mkdir()
        with (
            spark_session("local[1]") as spark,
            place_of(kind, folder / "sink") as place,
            Feeders(servers, topic, "g", kind, *place) as feeders,
        ):
            spark.dataSource.register(KafkaSource)
            table = Table(spark, servers, topic, folder)
            results = await broker_kills.kill_brokers(kafka, feeders, table, runs, Random(seed))
            table.stop()
    return f"{runs} brokers killed, {kind}: {results}, each record once"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", choices=("feeder", "executor", "broker"), required=True)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sink", action="append", choices=SINKS)
    arguments = parser.parse_args()
    sinks = arguments.sink or list(SINKS)
    if arguments.of == "feeder":
        asyncio.run(kill_for_long(sinks, arguments.runs, arguments.seed))
        return
    for sink in [""] if arguments.of == "executor" else sinks:
        with tempfile.TemporaryDirectory() as folder:
            values = arguments.runs, arguments.seed, Path(folder)
            print(asyncio.run(broker(*values, sink) if sink else executor(*values)))


if __name__ == "__main__":
    main()
