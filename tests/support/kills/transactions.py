"""Three members of an app are killed with kill -9 at random moments, with and without exactly-once.

    python -m tests.support.kills.transactions [--runs 100] [--at-least-once] [--seed N]

A handler publishes one result for each record, with 100 calls at once in the order of keys. A
reader with `read_committed` must find each result once. With `--at-least-once` it finds repeated
results, which shows that the check can fail.

`python -m tests.support.kills.transactions member JSON-OPTIONS` is one such member.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Self

from asyncconsumer import Consumer, ConsumerApp, Producer, Record
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until
from tests.support.kills.program import Say, nothing, on_a_broker

MEMBERS, PARTITIONS, KEYS = 3, 6, 60


class Found(NamedTuple):
    """The result of a run."""

    kills: int
    records: int
    missing: int
    repeated: int
    out_of_order: int  # results before those of earlier records of their key
    undone: int  # results in aborted transactions

    @property
    def wrong(self) -> int:
        """Return the number of records that break a guarantee."""
        return self.missing + self.repeated + self.out_of_order


def make_app(options: dict[str, Any]) -> ConsumerApp:
    source, sink = options.pop("source"), options.pop("sink")
    longest, chance = options.pop("longest"), Random()
    app = ConsumerApp(**options)

    @app.handler(source, publish=sink, ordering="key", concurrency=100)
    async def handle(record: Record) -> bytes | None:
        await asyncio.sleep(chance.random() * longest)
        return record.value

    return app


class Member:
    """A member process, which is restarted after each kill."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._command = [sys.executable, "-m", __spec__.name, "member", json.dumps(options)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        assert self._process.poll() is None, "the member ended by itself"
        self._process.kill()
        self._process.wait()

    async def stop(self) -> None:
        self._process.terminate()
        code = await asyncio.to_thread(self._process.wait, 60)
        assert code in (0, -signal.SIGTERM)  # the process may have no signal handler yet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.kill()


class Sink:
    """The results, read while they are written."""

    def __init__(self, kafka: KafkaHandle, topic: str) -> None:
        self.counts: Counter[int] = Counter()
        self.out_of_order = 0
        self._last: dict[bytes | None, int] = defaultdict(lambda: -1)
        self._consumer = Consumer(
            topic,
            bootstrap_servers=kafka.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )

    async def read(self) -> None:
        async with self._consumer as results:
            async for result in results:
                number = int(result.value or b"")
                self.counts[number] += 1
                self.out_of_order += self._last[result.key] > number
                self._last[result.key] = max(self._last[result.key], number)


async def kill_members(
    kafka: KafkaHandle,
    folder: Path,
    *,
    runs: int,
    records: int,
    seed: int,
    at_least_once: bool = False,
    say: Say = nothing,
) -> Found:
    chance, group = Random(seed), kafka.group()
    source, sink = await kafka.topic(partitions=PARTITIONS), await kafka.topic()
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6_000,
        "partition_assignment_strategy": "cooperative-sticky",
        "source": source,
        "sink": sink,
        "longest": 0.1,
    }
    results = Sink(kafka, sink)
    with ExitStack() as stack:
        members = [
            stack.enter_context(Member(options | _own(number, at_least_once=at_least_once)))
            for number in range(MEMBERS)
        ]
        async with (
            asyncio.TaskGroup() as group_of_tasks,
            Producer(bootstrap_servers=kafka.bootstrap_servers) as producer,
        ):
            reading = group_of_tasks.create_task(results.read())
            for run in range(runs + 1):
                numbers = range(run * records, (run + 1) * records)
                for number in numbers:
                    await producer.send(source, b"%d" % number, key=b"%d" % (number % KEYS))
                await producer.flush()
                total = numbers.stop
                if run < runs:
                    enough = numbers.start + chance.randrange(1, records)
                    await until(lambda: len(results.counts) >= enough, 300)  # noqa: B023
                    await asyncio.sleep(chance.random() * 0.2)
                    victim = chance.choice(members)
                    victim.kill()
                    victim.start()
                    say(
                        f"kill {run + 1}: {len(results.counts)} of {total} results, "
                        f"{_repeated(results)} repeated"
                    )
            await until(lambda: len(results.counts) >= total, 300)
            for member in members:
                await member.stop()
            await asyncio.sleep(1)  # so that repeated results are read
            reading.cancel()
    everything = await _number_of_all(kafka, sink)
    return Found(
        runs,
        total,
        total - len(results.counts),
        _repeated(results),
        results.out_of_order,
        everything - results.counts.total(),
    )


def _own(number: int, *, at_least_once: bool) -> dict[str, Any]:
    """Return the options of one member."""
    if at_least_once:
        return {"auto_commit_interval_ms": 100}
    return {"exactly_once": True, "transactional_id": f"member-{number}"}


def _repeated(results: Sink) -> int:
    return results.counts.total() - len(results.counts)


async def _number_of_all(kafka: KafkaHandle, topic: str) -> int:
    """Return the number of results, with those of aborted transactions."""
    async with Consumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        stop_at="end",
    ) as consumer:
        return len([message async for message in consumer])


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--records", type=int, default=500, help="records of each run")
    parser.add_argument("--at-least-once", action="store_true")


if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        asyncio.run(make_app(json.loads(sys.argv[2])).run())
    else:
        on_a_broker(__doc__, options, kill_members)
