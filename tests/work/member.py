"""A program with an app, to be killed: `python -m tests.work.member LIFE INTO JSON-OPTIONS`.

Its handler takes its time and then writes down, for good, what it was given: into an SQLite
database, or as a line of a file, with when it began and ended by the clock that all share.
"""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Self

from asyncconsumer import ConsumerApp, Record

Write = Callable[[str, Record, int, int], None]


def into_database(path: Path) -> Write:
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    database.execute("PRAGMA synchronous=OFF")  # the machine is not what is killed

    def write(life: str, record: Record, began: int, ended: int) -> None:
        row = life, record.partition, record.offset
        database.execute("INSERT INTO handled VALUES (?, ?, ?)", row)

    return write


def into_file(path: Path) -> Write:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(life: str, record: Record, began: int, ended: int) -> None:
        key, value = (record.key or b"").decode(), (record.value or b"").decode()
        os.write(file, f"{life} {key} {value} {began} {ended}\n".encode())

    return write


async def run(life: str, into: Path, options: dict[str, Any]) -> None:
    write = (into_database if into.suffix == ".db" else into_file)(into)
    topic, longest = options.pop("topic"), options.pop("longest")
    concurrency = options.pop("concurrency")
    app = ConsumerApp(**options)
    chance = Random()

    @app.handler(topic, ordering="key", concurrency=concurrency)
    async def handle(record: Record) -> None:
        began = time.monotonic_ns()
        await asyncio.sleep(chance.random() * longest)
        write(life, record, began, time.monotonic_ns())

    await app.run()


class Process:
    """Such a program."""

    def __init__(self, life: str, into: Path, **options: Any) -> None:
        command = [sys.executable, "-m", __spec__.name, life, str(into), json.dumps(options)]
        self._process = subprocess.Popen(command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    async def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._process.wait, 60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.kill()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])))
