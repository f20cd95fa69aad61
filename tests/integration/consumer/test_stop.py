"""The graceful stop of a consumer by another task, on a real broker."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from asyncconsumer import ClosedError, Consumer
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.real_consumer import make_consumer, next_of, send, take

Read = Callable[[Consumer[Any, Any], list[int]], Any]


async def loop(consumer: Consumer[Any, Any], seen: list[int]) -> None:
    async for record in consumer:
        seen.append(int(record.value or b""))
        await asyncio.sleep(0)


async def batches(consumer: Consumer[Any, Any], seen: list[int]) -> None:
    async for batch in consumer.batches(max_records=7):
        seen += [int(record.value or b"") for record in batch]
        await asyncio.sleep(0)


async def generator(consumer: Consumer[Any, Any], seen: list[int]) -> None:
    async for value in (int(record.value or b"") async for record in consumer):
        seen.append(value)
        await asyncio.sleep(0)


async def streams(consumer: Consumer[Any, Any], seen: list[int]) -> None:
    async with asyncio.TaskGroup() as group:
        for stream in consumer.streams(2):
            group.create_task(loop(stream, seen))  # type: ignore[arg-type]


@pytest.mark.parametrize("read", [loop, batches, generator, streams])
async def test_stop_ends_loops_and_loses_nothing(kafka: KafkaHandle, read: Read) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(2_000), 2)
    seen: list[int] = []
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read(consumer, seen))
            while len(seen) < 100:
                await asyncio.sleep(0)
            await consumer.stop()
            assert not consumer.assignment
        assert reading.exception() is None
    assert len(seen) < 2_000
    async with make_consumer(kafka, topic, group_id=group) as second:
        rest = await take(second, 2_000 - len(seen))
    assert sorted(seen + rest) == list(range(2_000))


async def test_a_signal_handler_can_stop_a_consumer(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(2_000))
    seen: list[int] = []
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        running = asyncio.get_running_loop()
        running.add_signal_handler(signal.SIGUSR1, consumer.stop)
        try:
            async for record in consumer:
                seen.append(int(record.value or b""))
                if len(seen) == 4:
                    os.kill(os.getpid(), signal.SIGUSR1)
                await asyncio.sleep(0)
        finally:
            running.remove_signal_handler(signal.SIGUSR1)
    assert len(seen) < 2_000
    async with make_consumer(kafka, topic, group_id=group) as second:
        assert await next_of(second) == len(seen)


async def test_the_reading_task_can_stop_its_consumer(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))
    async with make_consumer(kafka, topic, group_id=group) as consumer:
        async for record in consumer:
            assert record.offset == 0
            async with asyncio.timeout(5):  # stop does not wait for its own task
                await consumer.stop()
    await consumer.stop()  # the block is over, so there is nothing to do
    async with make_consumer(kafka, topic, group_id=group) as second:
        assert await next_of(second) == 1


async def test_stop_before_the_block_is_refused() -> None:
    with pytest.raises(ClosedError, match="not open yet"):
        Consumer("orders", bootstrap_servers="127.0.0.1:1", group_id="billing").stop()
