"""A service as others meet it: a program that keeps orders, reached by HTTP, ended by signals."""

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
    """Something that runs; what it prints goes to a file."""

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

    async def tells(self, line: str, times: int = 1) -> None:
        await until(lambda: self.alive() and self.observed.count(line) >= times)

    def alive(self) -> bool:
        assert self.process.poll() is None, self.observed
        return True

    async def ends(self, how: signal.Signals | None = signal.SIGTERM) -> int:
        """Wait for its exit code."""
        if how is not None:
            self.process.send_signal(how)
        await until(lambda: self.process.poll() is not None)
        return self.process.returncode

    async def aclose(self) -> None:
        """Leave nothing running, however the test ended."""
        if self._process is None or self._process.poll() is not None:
            return
        try:
            async with asyncio.timeout(20):
                await self.ends()
        except TimeoutError:
            self._process.kill()
            self._process.wait()


class Service(Program):
    """One that keeps orders in a store."""

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

    async def ends_in_the_midst(self) -> int:
        """Stop the service while orders arrive. Return its exit code."""
        over = asyncio.Event()

        async def go_on() -> None:
            while not over.is_set():
                await self.send(50)
                await asyncio.sleep(0.02)  # the service is to have the processor, too

        before = len(self.kept())
        async with asyncio.TaskGroup() as group:
            group.create_task(go_on())
            await until(lambda: self.alive() and len(self.kept()) > before + 20)
            code = await self.ends()
            over.set()
        await self.send(10)
        return code

    def keep(self, numbers: Iterable[int]) -> None:
        """As the service would."""
        with closing(sqlite3.connect(self.store, timeout=30)) as store, store:
            rows = [(number, "") for number in numbers]
            store.executemany("INSERT INTO orders VALUES (?, ?)", rows)

    def kept(self) -> Counter[int]:
        """Return how often each order is in the store."""
        if not self.store.exists():
            return Counter()
        with closing(sqlite3.connect(self.store, timeout=30)) as store:
            try:
                return Counter(number for (number,) in store.execute("SELECT number FROM orders"))
            except sqlite3.OperationalError:
                return Counter()  # the table is not made yet

    async def keeps_them_all(self) -> None:
        await until(lambda: self.alive() and len(self.kept()) >= self.sent)

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and body; each time by a connection of its own, so by any of its processes."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                text = await answer.text()
                is_json = answer.content_type == "application/json"
                return answer.status, json.loads(text) if is_json else text
        except aiohttp.ClientConnectionError:
            return 0, None

    async def says(self, path: str, status: int, times: int = 1) -> None:
        """Wait until it answers so, so often in a row."""

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
