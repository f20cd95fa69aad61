"""Kill -9 at random moments: `python -m tests.support.kills.handlers --runs 100 --store kafka`.

Handlers write to SQLite. No record may be missing. A record that was committed when a process was
killed, as an offset or in the metadata, must not be redelivered. If offsets are stored with results
(`sqlite`, `handlers`, `transaction`), there is one result of each record.
"""

import argparse
import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.config.choices import IsolationLevel
from asyncconsumer.handlers.commit_metadata import decode
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until
from tests.support.kills.exactly_once import PROGRAMS
from tests.support.kills.handler_member import Process
from tests.support.kills.program import Say, nothing, on_a_broker
from tests.support.real_apps import offsets, send

PARTITIONS = 2
Place = tuple[int, int]  # partition, offset


class Found(NamedTuple):
    """The result of a run."""

    missing: int
    repeated: int  # handled more than once
    wrongly_repeated: int  # though committed; with results, each finished record is committed
    at_work: int  # kills of processes with unfinished records
    committed_beyond: int  # kills at which records after a gap were committed
    undone: int  # results in aborted transactions

    @property
    def wrong(self) -> int:
        """Return the number of records that break a guarantee."""
        return self.missing + self.wrongly_repeated


class Results(Protocol):
    """The place to which a program writes its results."""

    options: dict[str, Any]  # for the program

    async def written(self) -> int:
        """Return the number of results that are written."""

    async def made(self) -> list[tuple[str, Place]]:
        """Return the records with a committed result, each with the life that wrote it."""


class DatabaseResults:
    """Results in an SQLite database."""

    def __init__(self, path: Path) -> None:
        self.options: dict[str, Any] = {}
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("CREATE TABLE handled (life TEXT, partition INT, offset INT)")
        self._database.execute("CREATE TABLE offsets (partition INT PRIMARY KEY, next INT)")

    async def written(self) -> int:
        (result,) = self._database.execute("SELECT COUNT(*) FROM handled").fetchone()
        return int(result)

    async def made(self) -> list[tuple[str, Place]]:
        rows = self._database.execute("SELECT life, partition, offset FROM handled")
        return [(life, (partition, offset)) for life, partition, offset in rows]

    def close(self) -> None:
        self._database.close()


class TopicResults:
    """Results in a topic, written in transactions."""

    def __init__(self, kafka: KafkaHandle, name: str) -> None:
        self.options: dict[str, Any] = {"sink": name}
        self._servers = kafka.bootstrap_servers
        self._tp = TopicPartition(name, 0)

    async def written(self) -> int:
        async with Consumer(bootstrap_servers=self._servers) as consumer:
            return (await consumer.end_offsets([self._tp]))[self._tp]

    async def made(self) -> list[tuple[str, Place]]:
        return await self._read("read_committed")

    async def count_with_aborted(self) -> int:
        return len(await self._read("read_uncommitted"))

    async def _read(self, isolation_level: IsolationLevel) -> list[tuple[str, Place]]:
        reading = Consumer(
            partitions=[self._tp],
            bootstrap_servers=self._servers,
            isolation_level=isolation_level,
            auto_offset_reset="earliest",
            stop_at="end",
            value_deserializer=str,
        )
        async with reading as results:
            rows = [(message.value or "").split() async for message in results]
        return [(life, (int(partition), int(offset))) for life, partition, offset in rows]


@asynccontextmanager
async def results_of(kafka: KafkaHandle, store: str, path: Path) -> AsyncIterator[Results]:
    if store == "transaction":
        yield TopicResults(kafka, await kafka.topic())
        return
    table = DatabaseResults(path)
    yield table
    table.close()


async def kill_at_random(
    kafka: KafkaHandle,
    folder: Path,
    *,
    runs: int,
    records: int,
    seed: int,
    store: str = "kafka",
    say: Say = nothing,
) -> Found:
    chance, path = Random(seed), folder / "handled.db"
    topic, group = await kafka.topic(partitions=PARTITIONS), kafka.group()
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": group,
        "group_instance_id": "m",  # the next member need not wait for its session
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 50,
        "topic": topic,
        "longest": 0.05,
        "concurrency": 50,
        "store": store,
    }
    wrongly = beyond = at_work = 0
    known: set[Place] = set()  # committed
    async with results_of(kafka, store, path) as results:
        for life in range(runs + 1):
            await send(kafka, topic, range(records), keys=40)
            everything, before = records * (life + 1), await results.written()
            with Process(str(life), path, **options, **results.options) as process:
                if life == runs:
                    await until(lambda: _all_made(results, everything), 600)  # noqa: B023
                    assert await process.stop() == 0
                else:
                    enough = before + chance.randrange(1, records)
                    await until(lambda: _written(results, enough), 600)  # noqa: B023
                    await asyncio.sleep(chance.random() * 0.1)
                    assert process.running
                    process.kill()
            results_so_far = await results.made()
            done = {place for writer, place in results_so_far if writer == str(life)}
            wrongly += len(done & known)
            at_work += life < runs and len({place for _, place in results_so_far}) < everything
            if store == "kafka":
                committed = await _committed(kafka, group)
                beyond += committed.beyond
                known |= committed.places
            say(f"life {life}: {len(results_so_far)} of {everything} records, {at_work} at work")
        of_each = Counter(place for _, place in await results.made())
        undone = 0
        if isinstance(results, TopicResults):
            undone = await results.count_with_aborted() - of_each.total()
    repeated = of_each.total() - len(of_each)
    wrongly = wrongly if store == "kafka" else repeated
    return Found(everything - len(of_each), repeated, wrongly, at_work, beyond, undone)


async def _written(results: Results, enough: int) -> bool:
    return await results.written() >= enough


async def _all_made(results: Results, everything: int) -> bool:
    if await results.written() < everything:
        return False
    return len({place for _, place in await results.made()}) == everything


class Committed(NamedTuple):
    places: set[Place]
    beyond: int  # partitions with records committed after a gap


async def _committed(kafka: KafkaHandle, group: str) -> Committed:
    places: set[Place] = set()
    beyond = 0
    for tp, offset in (await offsets(kafka, group)).items():
        ranges = decode(offset, offset.metadata)
        beyond += bool(ranges)
        places |= {(tp.partition, n) for n in range(offset)}
        places |= {(tp.partition, n) for offset_range in ranges for n in range(*offset_range)}
    return Committed(places, beyond)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--records", type=int, default=1_000, help="records of each run")
    parser.add_argument("--store", choices=["kafka", *PROGRAMS], default="kafka")


if __name__ == "__main__":
    on_a_broker(__doc__, options, kill_at_random)
