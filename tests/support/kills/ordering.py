"""A check of the order per key while members join, leave and are killed.

    python -m tests.support.kills.ordering --records 1000000 --keys 10000

Two hundred handlers with random delays run in processes that join, leave and are killed while
records arrive. When a handler starts a record, it has finished all earlier records of that key. A
process is frozen before it is killed, and only a process with records in flight counts.
"""

import argparse
import asyncio
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer

from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until
from tests.support.kills.handler_member import Process
from tests.support.kills.program import Say, nothing, on_a_broker

PARTITIONS = 4


class Line(NamedTuple):
    """One call of a handler."""

    life: str
    key: str
    number: int  # of the record within its key
    began: int
    ended: int  # 0 at the start of the call

    @classmethod
    def of(cls, text: str) -> "Line":
        life, key, number, began, ended = text.split()
        return cls(life, key, int(number), int(began), int(ended))


class Handled:
    """The log of the members. Each line is read once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self.done: list[Line] = []
        self.in_flight: Counter[str] = Counter()  # unfinished calls by life

    def read(self) -> None:
        """Read the new lines."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for text in lines:
            line = Line.of(text.decode())
            self.in_flight[line.life] += -1 if line.ended else 1
            if line.ended:
                self.done.append(line)

    def count(self) -> int:
        """Return the number of handled records."""
        self.read()
        return len(self.done)

    def has_calls_of(self, life: str) -> bool:
        """Return whether a process has started a call."""
        self.read()
        return life in self.in_flight

    def close(self) -> None:
        self._file.close()


class Found(NamedTuple):
    """The result of a run."""

    handled: int
    missing: int
    repeated: int
    too_early: int  # started before all earlier records of its key were finished
    overlapping: int  # started during a call of the same key
    lives: int  # processes with calls
    killed: int = 0  # killed processes
    cut_short: int = 0  # unfinished records of killed processes

    @property
    def wrong(self) -> int:
        """Return the number of records that break a guarantee."""
        return self.missing + self.too_early + self.overlapping


def judge(lines: list[Line], records: int) -> Found:
    by_key: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_key[line.key].append(line)
    too_early = overlapping = different = 0
    for of_key in by_key.values():
        of_key.sort(key=lambda line: line.began)
        finished: dict[int, int] = {}  # the time of the first end
        for line in of_key:
            finished[line.number] = min(line.ended, finished.get(line.number, line.ended))
        different += len(finished)
        free = 0
        for line in of_key:
            earlier = finished.get(line.number - 1, 0 if line.number == 0 else 2**63)
            too_early += earlier > line.began
            overlapping += free > line.began
            free = max(free, line.ended)
    lives = len({line.life for line in lines})
    missing, repeated = records - different, len(lines) - different
    return Found(len(lines), missing, repeated, too_early, overlapping, lives)


async def produce(
    kafka: KafkaHandle, topic: str, least: int, keys: int, rate: float, enough: asyncio.Event
) -> int:
    """Send at least `least` records, continue until `enough` is set, and return the count."""
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=5) as producer:
        started, n = time.monotonic(), 0
        while n < least or not enough.is_set():
            await producer.send(topic, b"%d" % (n // keys), key=b"%d" % (n % keys))
            n += 1
            if n % 500 == 0 and (ahead := started + n / rate - time.monotonic()) > 0:
                await asyncio.sleep(ahead)
        await producer.flush()
        return n


async def keep_order(
    kafka: KafkaHandle,
    folder: Path,
    *,
    records: int,
    keys: int,
    rate: float,
    rounds: int,
    seed: int,
    say: Say = nothing,
) -> Found:
    chance, path = Random(seed), folder / "handled"
    path.touch()
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": kafka.group(),
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 200,
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 6_000,
        "partition_assignment_strategy": "cooperative-sticky",
        "topic": await kafka.topic(partitions=PARTITIONS),
        "longest": 0.02,
        "concurrency": 200,
    }
    handled, cut_short = Handled(path), []
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        work = produce(kafka, options["topic"], records, keys, rate, enough)
        producing = tasks.create_task(work)
        with Process("steady", path, group_instance_id="steady", **options):
            for number in range(rounds):
                share = records * number // rounds
                await until(lambda: handled.count() >= share, 1_800)  # noqa: B023
                life = f"second{number}"
                with Process(life, path, group_instance_id="second", **options) as second:
                    await until(lambda: handled.has_calls_of(life), 120)  # noqa: B023
                    await asyncio.sleep(chance.uniform(0, 1))
                    if number % 2:
                        assert await second.stop() == 0
                    else:
                        cut_short.append(await kill_at_work(second, life, handled))
                say(f"{life}: {len(handled.done)} handled, cut short {sum(cut_short)}")
            enough.set()
            sent = await producing
            await until(lambda: _all_handled(handled, sent), 600)
    handled.close()
    results = judge(handled.done, sent)
    return results._replace(killed=len(cut_short), cut_short=sum(cut_short))


async def kill_at_work(process: Process, life: str, handled: Handled) -> int:
    """Kill a member that has unfinished records. Return their number."""
    async with asyncio.timeout(60):
        while True:
            process.freeze()
            handled.read()
            if in_flight := handled.in_flight[life]:
                process.kill()
                return in_flight
            process.thaw()
            await asyncio.sleep(0.005)


async def _all_handled(handled: Handled, records: int) -> bool:
    """Return whether all records were handled. With a million lines, this takes seconds."""
    await asyncio.sleep(records / 500_000)
    handled.read()
    return len(handled.done) >= records and judge(handled.done, records).missing == 0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=10_000, help="records a second")
    parser.add_argument(
        "--rounds", type=int, default=20, help="rounds of a member that joins and leaves"
    )


if __name__ == "__main__":
    on_a_broker(__doc__, options, keep_order)
