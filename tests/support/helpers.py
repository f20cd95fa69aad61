"""Helpers of several tests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.types import TopicPartition


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 60) -> None:
    """Wait until the condition holds. Fail if it does not within `seconds`."""
    async with asyncio.timeout(seconds):
        while True:
            result = condition()
            if await result if isinstance(result, Awaitable) else result:
                return
            await asyncio.sleep(0.02)


async def produce(topic: str, values: Iterable[bytes], **settings: Any) -> None:
    """Send values one by one, each acknowledged by all replicas in sync."""
    async with AIOKafkaProducer(acks="all", **settings) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)


async def consume(topic: str, count: int, **settings: Any) -> list[bytes]:
    """Return the first `count` values of a topic, read with aiokafka."""
    async with asyncio.timeout(60):
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await consumer.getone()).value for _ in range(count)]


async def delete_records(kafka: KafkaHandle, topic: str, partition: int, before: int) -> None:
    """Delete the records before an offset, as retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    await admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before)})
    await admin.close()


def by_protocol(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without those that KIP-848 coordinators set."""
    if options.get("group_protocol") != "consumer":
        return options
    set_by_coordinator = {
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "partition_assignment_strategy",
    }
    return {name: value for name, value in options.items() if name not in set_by_coordinator}
