"""Programs of tests: a service that stores orders, which has an HTTP server and handles signals."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
from aiokafka import AIOKafkaProducer

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers.ports import Ports
from tests.support.helpers import until

ROOT = Path(__file__).parents[2]


class Program:
    """A program whose output is written to a file."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.environment = environment
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self.variables, stdout=log, stderr=log
            )

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def observed(self) -> str:
        return self._log.read_text()

    async def wait_output(self, line: str, times: int = 1) -> None:
        await until(lambda: self.alive() and self.observed.count(line) >= times)

    def alive(self) -> bool:
        assert self.process.poll() is None, self.observed
        return True

    async def end(self, how: signal.Signals | None = signal.SIGTERM) -> int:
        """End the program with a signal, or wait for its end without one. Return the exit code."""
        if how is not None:
            self.process.send_signal(how)
        await until(lambda: self.process.poll() is not None)
        return self.process.returncode

    async def aclose(self) -> None:
        """End the program if it is still running."""
        if self._process is None or self._process.poll() is not None:
            return
        try:
            async with asyncio.timeout(20):
                await self.end()
        except TimeoutError:
            self._process.kill()
            self._process.wait()


class Service(Program):
    """A service that stores orders in SQLite."""

    def __init__(self, kafka: KafkaHandle, topic: str, folder: Path, port: int) -> None:
        self.topic, self.group, self.port, self.sent = topic, kafka.group(), port, 0
        self.store, self._brokers = folder / "orders.sqlite", kafka.bootstrap_servers
        super().__init__(
            folder,
            ASYNCCONSUMER_BOOTSTRAP_SERVERS=self._brokers,
            ASYNCCONSUMER_GROUP_ID=self.group,
            TOPIC=topic,
            STORE=str(self.store),
            PYTHONPATH=str(folder),
        )

    async def send(self, count: int) -> None:
        """Send this number of orders to two partitions in turn."""
        async with AIOKafkaProducer(bootstrap_servers=self._brokers) as producer:
            for number in range(self.sent, self.sent + count):
                order = json.dumps({"number": number, "customer": f"c{number % 7}"})
                await producer.send(self.topic, order.encode(), partition=number % 2)
        self.sent += count

    async def stop_during_traffic(self) -> int:
        """Stop the service while orders arrive. Return its exit code."""
        stopped = asyncio.Event()

        async def send_orders() -> None:
            while not stopped.is_set():
                await self.send(50)
                await asyncio.sleep(0.02)  # so that the service has CPU time, too

        before = len(self.stored())
        async with asyncio.TaskGroup() as group:
            group.create_task(send_orders())
            await until(lambda: self.alive() and len(self.stored()) > before + 20)
            code = await self.end()
            stopped.set()
        await self.send(10)
        return code

    def insert(self, numbers: Iterable[int]) -> None:
        """Insert orders into the store, as the service does."""
        with closing(sqlite3.connect(self.store, timeout=30)) as store, store:
            rows = [(number, "") for number in numbers]
            store.executemany("INSERT INTO orders VALUES (?, ?)", rows)

    def stored(self) -> Counter[int]:
        """Return how often each order is in the store."""
        if not self.store.exists():
            return Counter()
        with closing(sqlite3.connect(self.store, timeout=30)) as store:
            try:
                return Counter(number for (number,) in store.execute("SELECT number FROM orders"))
            except sqlite3.OperationalError:
                return Counter()  # the table does not exist yet

    async def wait_stored(self) -> None:
        await until(lambda: self.alive() and len(self.stored()) >= self.sent)

    async def get(self, path: str) -> tuple[int, Any]:
        """Return status and body. Each call has a new connection, to any process of the service."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                text = await answer.text()
                is_json = answer.content_type == "application/json"
                return answer.status, json.loads(text) if is_json else text
        except aiohttp.ClientConnectionError:
            return 0, None

    async def wait_status(self, path: str, status: int, times: int = 1) -> None:
        """Wait until `times` consecutive responses have this status."""

        async def enough() -> bool:
            self.alive()
            answers = [(await self.get(path))[0] for _ in range(times)]
            return set(answers) == {status}

        await until(enough)


@asynccontextmanager
async def open_service(kafka: KafkaHandle, folder: Path) -> AsyncIterator[Service]:
    """Yield a service that is not started. It ends with the block."""
    topic, ports = await kafka.topic(partitions=2), Ports()
    try:
        async with aclosing(Service(kafka, topic, folder, ports.take())) as service:
            yield service
    finally:
        ports.close()
