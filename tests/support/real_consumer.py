"""Consumers on a real broker, and records for them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka
from tests.support.helpers import by_protocol

QUICK: dict[str, Any] = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 300,
    "metadata_refresh_ms": 300,
    "auto_commit_interval_ms": 200,
    "auto_offset_reset": "earliest",
}


def make_consumer(kafka: KafkaHandle, *topics: str, **options: Any) -> Consumer[Any, Any]:
    """Return a consumer with short intervals."""
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    return Consumer(*topics, **by_protocol({**QUICK, **servers, **options}))


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


async def send(
    kafka: KafkaHandle | Kafka, topic: str, numbers: Iterable[int], partitions: int = 1
) -> None:
    """Send numbers as values, to the partitions in turn."""
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % partitions)
        await producer.flush()


async def take(consumer: Consumer[Any, Any], count: int) -> list[int]:
    """Return the values of the next records. The last one is acknowledged, too."""
    values: list[int] = []
    async with asyncio.timeout(60):
        async for record in consumer:
            values.append(int(record.value or b""))
            if len(values) == count:
                break
    return values


@asynccontextmanager
async def reading(consumer: Consumer[Any, Any]) -> AsyncIterator[list[int]]:
    """Read in the background of the block. Yield the list of offsets."""
    values: list[int] = []

    async def read() -> None:
        async for record in consumer:
            values.append(int(record.value or b""))  # noqa: PERF401 - read by other tasks meanwhile

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        yield values
        task.cancel()


async def next_of(consumer: Consumer[Any, Any]) -> int:
    """Return the value of the next record, and acknowledge it."""
    async for record in consumer:
        return int(record.value or b"")
    raise AssertionError("the consumer has ended")
