"""Feeders that are killed and frozen at random moments. Each record must be in the sink once.

    python -m tests.support.kills.feeder [--runs 50] [--sink NAME ...] [--seed N]

In each run two feeders of one group share a topic, and one of them is killed with SIGKILL while
more is produced. `python -m tests.support.kills.feeder feed ...` is one such feeder.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from asyncconsumer import Consumer
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.feeder.feeder import SparkFeeder
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka
from tests.support.feeder_tables import landed, numbers, repeated
from tests.support.helpers import until
from tests.support.real_consumer import QUICK, send
from tests.support.s3_server import BUCKET, build, s3_server, url_of

KafkaLike = KafkaHandle | Kafka
SINKS: Final = ("landing", "s3", "delta", "iceberg", "own")
PARTITIONS: Final = 4
A_RUN: Final = 600  # records
_PATIENCE: Final = 300.0  # seconds without a new record in the sink


# --- a feeder ------------------------------------------------------------------------------------


class SlowLanding(LandingFolder):
    """A slow landing folder, so that a process frozen at random is probably publishing."""

    def publish(self, batch: FeedBatch, prepared: Any) -> Any:
        time.sleep(0.05)
        return super().publish(batch, prepared)


def sink_of(kind: str, folder: str) -> dict[str, Any]:
    """Return the arguments of a feeder."""
    if kind == "landing":
        return {"sink": LandingFolder(folder)}
    if kind == "slow landing":
        return {
            "sink": SlowLanding(folder),
            "max_records": 40,
        }  # other files than those of other feeders
    if kind == "s3":
        options = {"allow_http": "true"}  # the other options are in the environment
        return {"sink": LandingFolder(url_of(Path(folder)), storage_options=options)}
    if kind == "delta":
        from asyncconsumer.spark.sinks.delta import DeltaSink  # a slow import

        return {"sink": DeltaSink(folder)}
    if kind == "iceberg":
        from tests.support.iceberg_tables import sink_in

        # a commit takes longer with each snapshot of the table
        return {"sink": sink_in(Path(folder)), "max_records": 100}

    def write(table: pa.Table, batch: FeedBatch) -> None:
        """Write a batch idempotently, to a file with the id of the batch."""
        path = Path(folder) / f"{batch.id}.parquet"
        pq.write_table(table, path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)

    return {"write": write}


async def feed(servers: str, topic: str, group: str, name: str, kind: str, folder: str) -> None:
    consumer = Consumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        group_instance_id=name or None,  # so that no feeder waits for the session of a killed one
        enable_auto_commit=False,
        **QUICK,
    )
    options = {"max_records": 25, "max_wait_ms": 10, "max_in_flight": 3, **sink_of(kind, folder)}
    async with SparkFeeder(consumer, **options) as feeder:
        sys.stdout.write("feeding\n")
        sys.stdout.flush()
        await feeder.run()


# --- kills ---------------------------------------------------------------------------------------


class Feeders:
    """Feeders of one group, each in a process of its own, and their sink."""

    def __init__(
        self,
        servers: str,
        topic: str,
        group: str,
        kind: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self._environment = {**os.environ, **(environment or {})}
        self._kind = kind
        self._folder = folder
        self._place = servers, topic, group
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in list(self._processes):
            self.kill(process)

    def start(self, name: str, kind: str | None = None, *, static: bool = True) -> None:
        named = name if static else ""
        arguments = (*self._place, named, kind or self._kind, str(self._folder))
        command = [sys.executable, "-m", "tests.support.kills.feeder", "feed", *arguments]
        self._processes[name] = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=self._environment
        )

    async def ready(self, name: str) -> None:
        """Wait until the feeder has started."""
        output = self._processes[name].stdout
        assert output is not None
        assert await asyncio.to_thread(output.readline) == "feeding\n"

    def signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        with self._processes.pop(name) as process:
            process.kill()

    def alive(self, name: str) -> bool:
        return self._processes[name].poll() is None

    def files(self) -> int:
        """Return the number of files, as a measure of progress."""
        return len(list(self._folder.rglob("*.parquet")))

    def held(self) -> list[int]:
        """Return the values in the sink."""
        if self._kind == "delta":
            from deltalake import DeltaTable

            table = DeltaTable(str(self._folder))
            return numbers(table.to_pyarrow_table(columns=["value"]))
        if self._kind == "iceberg":
            from tests.support.iceberg_tables import held_in

            return held_in(self._folder)
        return numbers(landed(self._folder))


async def kills(kafka: KafkaLike, feeders: Feeders, runs: int, chance: Random) -> list[int]:
    """Kill the feeder repeatedly. Return the content of the sink."""
    sent = 0
    for name in ("a", "b"):
        feeders.start(name)
    for _ in range(runs):
        victim = chance.choice("ab")
        await feeders.ready(victim)
        await send(kafka, feeders.topic, range(sent, sent + A_RUN), PARTITIONS)
        sent += A_RUN
        before = feeders.files()
        await until(lambda before=before: feeders.files() > before)  # type: ignore[misc]
        await asyncio.sleep(chance.uniform(0, 0.4))
        feeders.kill(victim)
        await asyncio.sleep(chance.uniform(0, 0.4))
        feeders.start(victim)
    values = await wait_written(feeders, sent)
    assert repeated(values) == []
    assert values == list(range(sent))
    return values


async def wait_written(feeders: Feeders, sent: int) -> list[int]:
    """Wait until the sink has all values. Fail after a time without progress."""
    largest, loop = 0, asyncio.get_running_loop()
    async with asyncio.timeout(_PATIENCE) as patience:
        while len(set(values := feeders.held())) < sent:
            if len(values) > largest:
                largest = len(values)
                patience.reschedule(loop.time() + _PATIENCE)
            await asyncio.sleep(0.2)
    return values


@contextmanager
def place_of(kind: str, folder: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Run an S3 server if the sink needs it.

    Return the folder in which its files appear, and the environment of its feeders.
    """
    if kind != "s3":
        yield folder, {}
        return
    with s3_server(build(), folder) as server:
        yield server.root / BUCKET / "kills", server.environment


async def kill_for_long(kinds: list[str], runs: int, seed: int) -> None:
    async with Kafka() as kafka:
        for kind in kinds:
            topic = f"kills-{kind}"
            await kafka.admin.create_topic(topic, partitions=PARTITIONS)
            with tempfile.TemporaryDirectory() as folder, place_of(kind, Path(folder)) as place:
                chance = Random(seed)
                with Feeders(kafka.bootstrap_servers, topic, f"g-{kind}", kind, *place) as feeders:
                    values = await kills(kafka, feeders, runs, chance)
            sys.stdout.write(f"{kind}: {runs} kills, {len(values)} records, each once\n")


def main() -> None:
    if sys.argv[1:2] == ["feed"]:
        asyncio.run(feed(*sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--sink", action="append", choices=SINKS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    asyncio.run(kill_for_long(options.sink or list(SINKS), options.runs, options.seed))


if __name__ == "__main__":
    main()
