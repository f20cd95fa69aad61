"""Live data for the dashboard: producers, groups of several kinds, and dead letters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from asyncconsumer import Consumer, ConsumerApp, ConsumerError
from asyncconsumer.testing.handles import KafkaHandle


class Member:
    """A member of a group that reads until it leaves."""

    def __init__(
        self, servers: str, group: str, topics: list[str], name: str, protocol: str, delay: float
    ) -> None:
        self._options: dict[str, Any] = {
            "bootstrap_servers": servers,
            "group_id": group,
            "client_id": name,
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 500,
            "partition_assignment_strategy": "cooperative-sticky",
        }
        if protocol == "consumer":
            del self._options["partition_assignment_strategy"]
        self._topics, self._delay = topics, delay
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        self._leaving.set()

    async def run(self) -> None:
        async with (
            Consumer(*self._topics, **self._options) as consumer,
            asyncio.TaskGroup() as group,
        ):
            reading = group.create_task(self._read(consumer))
            await self._leaving.wait()
            reading.cancel()

    async def _read(self, consumer: Consumer[Any, Any]) -> None:
        while True:
            with suppress(ConsumerError):
                async for _ in consumer:
                    await asyncio.sleep(self._delay)


class DashboardLoad:
    """Topics with producers, and members that join and leave."""

    def __init__(self, kafka: KafkaHandle, group: asyncio.TaskGroup) -> None:
        self.kafka = kafka
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []
        self.members: dict[str, Member] = {}

    def join(
        self,
        name: str,
        group: str,
        topics: list[str],
        protocol: str = "classic",
        delay: float = 0.0,
    ) -> None:
        member = Member(self.kafka.bootstrap_servers, group, topics, name, protocol, delay)
        self.members[name] = member
        self._tasks.append(self._group.create_task(member.run()))

    def write(self, topic: str, partitions: int, per_second: float) -> None:
        self._tasks.append(self._group.create_task(self._write(topic, partitions, per_second)))

    async def _write(self, topic: str, partitions: int, per_second: float) -> None:
        servers = self.kafka.bootstrap_servers
        while True:
            with suppress(KafkaError, OSError):
                async with AIOKafkaProducer(
                    bootstrap_servers=servers, request_timeout_ms=3_000
                ) as producer:
                    number = 0
                    while True:
                        await producer.send_and_wait(
                            topic, b"x" * 50, partition=number % partitions
                        )
                        number += 1
                        await asyncio.sleep(1 / per_second)
            await asyncio.sleep(0.5)

    async def fail(self, topic: str, dead: str, group: str, count: int) -> None:
        """Produce dead letters."""
        app = ConsumerApp(
            bootstrap_servers=self.kafka.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
        )
        seen: list[bytes] = []

        @app.handler(topic, dead_letter_topic=dead, on_error="skip")
        async def work(value: bytes) -> None:
            seen.append(value)
            if len(seen) <= count:
                raise TimeoutError("the payment service did not answer")

        async with app:
            while len(seen) < count:
                await asyncio.sleep(0.1)

    def stop(self) -> None:
        for member in self.members.values():
            member.leave()
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def dashboard_load(kafka: KafkaHandle) -> AsyncIterator[DashboardLoad]:
    async with asyncio.TaskGroup() as group:
        load = DashboardLoad(kafka, group)
        try:
            yield load
        finally:
            load.stop()
