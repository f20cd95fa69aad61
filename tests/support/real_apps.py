"""Apps on a real broker, and records for them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from asyncconsumer import ConsumerApp, TopicPartition
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.types import Offset
from tests.support.consumer_members import admin_of
from tests.support.helpers import by_protocol
from tests.support.real_consumer import QUICK


def make_app(kafka: KafkaHandle, **options: Any) -> ConsumerApp:
    """Return an app with short intervals."""
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    settings = {**QUICK, "shutdown_grace_ms": 5_000, **servers, **options}
    return ConsumerApp(**by_protocol(settings))


async def send(
    kafka: KafkaHandle,
    topic: str,
    values: Iterable[bytes | int],
    *,
    keys: int = 0,
    partition: int | None = None,
) -> None:
    """Send values, with keys in turn if `keys` is set."""
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            data = b"%d" % value if isinstance(value, int) else value
            key = b"%d" % (number % keys) if keys else None
            await producer.send(topic, data, key=key, partition=partition)
        await producer.flush()


async def offsets(kafka: KafkaHandle, group: str) -> dict[TopicPartition, Offset]:
    """Return the committed offsets of the group, with their metadata."""
    async with admin_of(kafka) as admin:
        result = await admin.list_consumer_group_offsets(group)
    return {
        TopicPartition(*tp): Offset(reported.offset, metadata=reported.metadata)
        for tp, reported in result.items()
    }


@asynccontextmanager
async def dead_letter_records(kafka: KafkaHandle, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    """Yield a consumer of the dead letters."""
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        yield consumer


async def read(kafka: KafkaHandle, topic: str, count: int) -> list[Any]:
    """Return this number of records of a topic, read with aiokafka."""
    async with asyncio.timeout(60), dead_letter_records(kafka, topic) as consumer:
        return [await consumer.getone() for _ in range(count)]
