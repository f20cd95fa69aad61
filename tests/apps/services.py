"""A service as others meet it: a program that keeps orders, reached by HTTP, ended by signals."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiokafka import AIOKafkaProducer

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers.ports import Ports
from tests.helpers import until

ROOT = Path(__file__).parents[2]


class Service:
    """A running example; what it prints goes to a file."""

    def __init__(self, kafka: KafkaHandle, topic: str, folder: Path, port: int) -> None:
        self.kafka, self.topic, self.port = kafka, topic, port
        self._group = kafka.group()
        self._store, self._log = folder / "orders.sqlite", folder / "service.log"
        self.process: subprocess.Popen[bytes]
        self.sent = 0

    def start(self, *command: str, **environment: str) -> Self:
        given = {
            "BROKERS": self.kafka.bootstrap_servers,
            "GROUP": self._group,
            "TOPIC": self.topic,
            "STORE": str(self._store),
            **environment,
        }
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **given}, stdout=log, stderr=log
            )
        return self

    @property
    def told(self) -> str:
        return self._log.read_text()

    async def send(self, count: int) -> None:
        """So many more orders, dealt to two partitions."""
        async with AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            for number in range(self.sent, self.sent + count):
                order = json.dumps({"number": number, "customer": f"c{number % 7}"})
                await producer.send(self.topic, order.encode(), partition=number % 2)
        self.sent += count

    def kept(self) -> Counter[int]:
        """How often each order is in the store."""
        if not self._store.exists():
            return Counter()
        with closing(sqlite3.connect(self._store, timeout=30)) as store:
            try:
                return Counter(number for (number,) in store.execute("SELECT number FROM orders"))
            except sqlite3.OperationalError:
                return Counter()  # the table is not made yet

    async def keeps_them_all(self) -> None:
        await until(lambda: self.alive() and len(self.kept()) >= self.sent)

    def alive(self) -> bool:
        assert self.process.poll() is None, self.told
        return True

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

    async def ends(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(how)
        await until(lambda: self.process.poll() is not None)
        return self.process.returncode


@asynccontextmanager
async def service(kafka: KafkaHandle, folder: Path) -> AsyncIterator[Service]:
    """Not started yet; ended with the block, however that ends."""
    ports = Ports()
    one = Service(kafka, await kafka.topic(partitions=2), folder, ports.take())
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.terminate()
            try:
                async with asyncio.timeout(20):
                    await until(lambda: one.process.poll() is not None)
            except TimeoutError:
                one.process.kill()
                one.process.wait()
        ports.close()
