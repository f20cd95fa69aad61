"""A program that tests kill: `python -m tests.support.kills.handler_member LIFE INTO JSON-OPTIONS`.

Its handler pauses and then writes the record durably, to an SQLite database or as a line of a file.
A line has the times of the start and of the end, of a clock that all processes share. With a store,
the program is one of `exactly_once`.
"""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self

from asyncconsumer import ConsumerApp, Record
from tests.support.kills.exactly_once import PROGRAMS


class Writer(Protocol):
    """A durable log of the calls of a handler."""

    def begun(self, record: Record) -> None: ...

    def done(self, record: Record, began: int) -> None: ...


class IntoDatabase:
    """A database of the handled records."""

    def __init__(self, life: str, path: Path) -> None:
        self._life = life
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._database.execute(
            "PRAGMA synchronous=OFF"
        )  # only the process is killed, not the machine

    def begun(self, record: Record) -> None: ...

    def done(self, record: Record, began: int) -> None:
        row = self._life, record.partition, record.offset
        self._database.execute("INSERT INTO handled VALUES (?, ?, ?)", row)


class IntoFile:
    """A file with a line for the start and for the end of each call."""

    def __init__(self, life: str, path: Path) -> None:
        self._life = life
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def begun(self, record: Record) -> None:
        self._line(record, time.monotonic_ns(), 0)

    def done(self, record: Record, began: int) -> None:
        self._line(record, began, time.monotonic_ns())

    def _line(self, record: Record, *times: int) -> None:
        key, value = (record.key or b"").decode(), (record.value or b"").decode()
        os.write(self._file, " ".join(map(str, (self._life, key, value, *times))).encode() + b"\n")


async def run(life: str, into: Path, options: dict[str, Any]) -> None:
    writer: Writer = (IntoDatabase if into.suffix == ".db" else IntoFile)(life, into)
    topic, longest = options.pop("topic"), options.pop("longest")
    concurrency = options.pop("concurrency")
    app = ConsumerApp(**options)
    chance = Random()

    @app.handler(topic, ordering="key", concurrency=concurrency)
    async def handle(record: Record) -> None:
        began = time.monotonic_ns()
        writer.begun(record)
        await asyncio.sleep(chance.random() * longest)
        writer.done(record, began)

    await app.run()


class Process:
    """A process of this program."""

    def __init__(self, life: str, into: Path, **options: Any) -> None:
        command = [sys.executable, "-m", __spec__.name, life, str(into), json.dumps(options)]
        self._process = subprocess.Popen(command)

    @property
    def running(self) -> bool:
        """Return whether the process is running."""
        return self._process.poll() is None

    def freeze(self) -> None:
        """Freeze the process until it is thawed or killed."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    async def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._process.wait, 60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.running:
            self.kill()


def main(life: str, into: str, options: str) -> None:
    value = json.loads(options)
    store = value.pop("store", "kafka")
    asyncio.run((run if store == "kafka" else PROGRAMS[store])(life, Path(into), value))


if __name__ == "__main__":
    main(*sys.argv[1:])
