"""Kill -9 at random moments: `python -m tests.work.kills --runs 100`.

Handlers write to SQLite. No record may be missing; what was committed when a process was killed, as
an offset or beside it, no later one may be given again.
"""

import argparse
import asyncio
import sqlite3
import tempfile
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.work.metadata import decode
from tests.helpers import until
from tests.work.member import Process
from tests.work.real import offsets, send

PARTITIONS = 2


class Found(NamedTuple):
    """What became of the records."""

    missing: int
    repeated: int  # handled more than once, none of which was committed before
    wrongly_repeated: int  # though committed
    told_beyond: int  # kills at which something was committed beyond a gap


async def kill_at_random(
    kafka: KafkaHandle, folder: Path, *, runs: int, records: int, seed: int, say: Any = None
) -> Found:
    chance = Random(seed)
    topic, group = await kafka.topic(partitions=PARTITIONS), kafka.group()
    path = folder / "handled.db"
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE handled (life TEXT, partition INT, offset INT)")

    def count(what: str = "DISTINCT partition || '/' || offset") -> int:
        (found,) = database.execute(f"SELECT COUNT({what}) FROM handled").fetchone()
        return int(found)

    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": group,
        "group_instance_id": "m",  # who comes next need not wait until it is missed
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 50,
        "topic": topic,
        "longest": 0.05,
        "concurrency": 50,
    }
    wrongly = beyond = 0
    known: set[tuple[int, int]] = set()  # committed
    for life in range(runs + 1):
        last = life == runs
        await send(kafka, topic, range(records), keys=40)
        before = count("*")
        with Process(str(life), path, **options) as process:
            enough = before + chance.randrange(1, records)
            everything = records * (life + 1)
            await until(
                lambda: count() == everything if last else count("*") >= enough,  # noqa: B023
                600,
            )
            await asyncio.sleep(0 if last else chance.random() * 0.1)
            if last:
                assert await process.stop() == 0
            else:
                process.kill()
        handled = set(
            database.execute("SELECT partition, offset FROM handled WHERE life=?", (str(life),))
        )
        wrongly += len(handled & known)
        for at, kept in (await offsets(kafka, group)).items():
            ranges = decode(kept, kept.metadata)
            beyond += bool(ranges)
            known |= {(at.partition, n) for n in range(kept)}
            known |= {(at.partition, n) for one in ranges for n in range(*one)}
        if say is not None:
            say(f"life {life}: {count('*')} handled, {count()} of {everything} different")
    found = Found(everything - count(), count("*") - count(), wrongly, beyond)
    database.close()
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--records", type=int, default=1_000, help="for each of them")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        async with Kafka() as kafka:
            found = await kill_at_random(
                KafkaHandle(kafka, "kills"),
                Path(folder),
                runs=asked.runs,
                records=asked.records,
                seed=asked.seed,
                say=print,
            )
    print(found)


if __name__ == "__main__":
    asyncio.run(main())
