"""Per-key order, whatever happens: `python -m tests.work.order --records 1000000 --keys 10000`.

Two hundred handlers at once with random delays, in processes that join, leave and are killed while
records keep coming. When a record is begun, all before it of its key were finished, and no two of a
key are worked on at the same time.
"""

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka
from tests.helpers import until
from tests.work.member import Process

PARTITIONS = 4


class Line(NamedTuple):
    """One record that was handled."""

    life: str
    key: str
    number: int  # of the record among those of its key
    began: int
    ended: int

    @classmethod
    def of(cls, text: str) -> "Line":
        life, key, number, began, ended = text.split()
        return cls(life, key, int(number), int(began), int(ended))


class Found(NamedTuple):
    """What became of the records."""

    handled: int
    missing: int
    repeated: int
    too_early: int  # begun before all earlier ones of its key were finished
    overlapping: int  # begun while another of its key was worked on


def judge(lines: list[Line], records: int) -> Found:
    by_key: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_key[line.key].append(line)
    too_early = overlapping = different = 0
    for of_key in by_key.values():
        of_key.sort(key=lambda line: line.began)
        finished: dict[int, int] = {}  # when, the first time
        for line in of_key:
            finished[line.number] = min(line.ended, finished.get(line.number, line.ended))
        different += len(finished)
        free = 0
        for line in of_key:
            earlier = finished.get(line.number - 1, 0 if line.number == 0 else 2**63)
            too_early += earlier > line.began
            overlapping += free > line.began
            free = max(free, line.ended)
    return Found(len(lines), records - different, len(lines) - different, too_early, overlapping)


async def produce(kafka: KafkaHandle, topic: str, records: int, keys: int, rate: float) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=5) as producer:
        started = time.monotonic()
        for n in range(records):
            await producer.send(topic, b"%d" % (n // keys), key=b"%d" % (n % keys))
            if n % 500 == 0 and (ahead := started + n / rate - time.monotonic()) > 0:
                await asyncio.sleep(ahead)
        await producer.flush()


async def keep_order(
    kafka: KafkaHandle,
    folder: Path,
    *,
    records: int,
    keys: int,
    rate: float,
    seed: int,
    say: Any = None,
) -> Found:
    chance, path = Random(seed), folder / "handled"
    topic, group = await kafka.topic(partitions=PARTITIONS), kafka.group()
    path.touch()
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 200,
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 6_000,
        "partition_assignment_strategy": "cooperative-sticky",
        "topic": topic,
        "longest": 0.02,
        "concurrency": 200,
    }
    lives = 0

    def member(name: str) -> Process:
        nonlocal lives
        lives += 1
        return Process(f"{name}{lives}", path, group_instance_id=name, **options)

    async with asyncio.TaskGroup() as tasks:
        producing = tasks.create_task(produce(kafka, topic, records, keys, rate))
        with member("steady"):
            second = member("second")
            try:
                while not producing.done():
                    await asyncio.sleep(chance.uniform(1, 4))
                    if chance.random() < 0.5:
                        second.kill()
                    else:
                        await second.stop()
                    second = member("second")
                    if say is not None:
                        say(f"life {lives}")
                await second.stop()
                await until(lambda: judge(read(path), records).missing == 0, 120)
            finally:
                with second:
                    pass
    return judge(read(path), records)


def read(path: Path) -> list[Line]:
    lines = path.read_text().splitlines(keepends=True)
    return [Line.of(line) for line in lines if line.endswith("\n")]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=10_000, help="records a second")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        async with Kafka() as kafka:
            found = await keep_order(
                KafkaHandle(kafka, "order"),
                Path(folder),
                records=asked.records,
                keys=asked.keys,
                rate=asked.rate,
                seed=asked.seed,
                say=print,
            )
    print(found)


if __name__ == "__main__":
    asyncio.run(main())
