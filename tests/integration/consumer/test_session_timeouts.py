"""Sessions of members with long processing or a blocked event loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from asyncconsumer import Consumer, ConsumerRebalanceListener, TopicPartition
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until
from tests.support.real_consumer import QUICK, make_consumer, send, take

SESSION = QUICK["session_timeout_ms"] / 1000
BLOCKED = 9.0


class Other:
    """A member in a thread of its own, which runs on while the loop of the test is blocked."""

    def __init__(self, kafka: KafkaHandle, topic: str, group: str) -> None:
        self.values: list[int] = []
        self.owned: frozenset[TopicPartition] = frozenset()
        self._consumer: Callable[[], Consumer] = lambda: make_consumer(
            kafka, topic, group_id=group, heartbeat_thread=False
        )
        self._stop = threading.Event()

    async def run(self) -> None:
        async with self._consumer() as consumer, asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(consumer))
            while not self._stop.is_set():
                self.owned = consumer.assignment
                await asyncio.sleep(0.02)
            reading.cancel()

    async def _read(self, consumer: Consumer) -> None:
        async for record in consumer:
            self.values.append(int(record.value or b""))

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def another(kafka: KafkaHandle, topic: str, group: str) -> Iterator[Other]:
    other = Other(kafka, topic, group)
    thread = threading.Thread(target=asyncio.run, args=(other.run(),))
    thread.start()
    try:
        yield other
    finally:
        other.stop()
        thread.join()


class Log(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.entries: list[str] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.entries.append("assigned")

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.entries.append("revoked")

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.entries.append("lost")


def block_the_loop() -> None:
    time.sleep(BLOCKED)


async def read_and_block(consumer: Consumer[Any, Any], log: Log, other: Other) -> None:
    """Read a record, block the loop, and read five more records."""
    records = aiter(consumer)
    await anext(records)
    block_the_loop()
    taken = len(other.owned) == 2
    log.entries.append("taken over" if taken else "kept")
    async for _record in records:
        log.entries.append("delivered")
        if log.entries.count("delivered") == 5:
            break


async def test_the_heartbeat_thread_keeps_the_session_of_a_blocked_loop(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group, log = await kafka.topic(partitions=2), kafka.group(), Log()
    await send(kafka, topic, range(200), 2)
    with another(kafka, topic, group) as other:
        await until(lambda: len(other.owned) == 2)
        async with make_consumer(kafka, topic, group_id=group, listener=log) as consumer:
            await consumer.wait_assigned()
            await send(kafka, topic, range(200, 400), 2)
            await read_and_block(consumer, log, other)
    assert log.entries[:3] == ["assigned", "kept", "delivered"]
    assert "lost" not in log.entries
    assert "blocked for" in caplog.text
    assert "in block_the_loop" in caplog.text


async def test_a_blocked_loop_delivers_no_record_of_lost_partitions(
    kafka: KafkaHandle,
) -> None:
    topic, group, log = await kafka.topic(partitions=2), kafka.group(), Log()
    await send(kafka, topic, range(200), 2)
    with another(kafka, topic, group) as other:
        await until(lambda: len(other.owned) == 2)
        async with make_consumer(
            kafka, topic, group_id=group, listener=log, heartbeat_thread=False
        ) as consumer:
            await consumer.wait_assigned()
            await send(kafka, topic, range(200, 400), 2)
            reading = asyncio.get_running_loop().create_task(read_and_block(consumer, log, other))
            await until(lambda: "lost" in log.entries)
            await until(lambda: log.entries.count("assigned") == 2)
            await send(kafka, topic, range(400, 600), 2)
            await reading
    assert log.entries[:4] == ["assigned", "taken over", "lost", "assigned"]


async def test_processing_may_take_longer_than_the_session_timeout(kafka: KafkaHandle) -> None:
    topic, group, log = await kafka.topic(partitions=2), kafka.group(), Log()
    await send(kafka, topic, range(10), 2)
    async with make_consumer(kafka, topic, group_id=group, listener=log) as consumer:
        records = aiter(consumer)
        await anext(records)
        await asyncio.sleep(SESSION * 1.5)
        await anext(records)
        assert log.entries == ["assigned"]
        assert await take(consumer, 8)


async def test_the_heartbeat_thread_ends_with_the_consumer(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with make_consumer(kafka, topic, group_id=kafka.group()) as consumer:
        await consumer.wait_assigned()
        assert "asyncconsumer watchdog" in {thread.name for thread in threading.enumerate()}
    assert "asyncconsumer watchdog" not in {thread.name for thread in threading.enumerate()}
