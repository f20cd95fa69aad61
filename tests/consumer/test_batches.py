"""Batches whose partitions are revoked while they are collected."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.serdes import Deserializer
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_stream import World
from tests.support.chunks import A, B
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast

AT = TopicPartition("t", 0)


@asynccontextmanager
async def batched(
    consumer: Consumer[Any, Any], max_wait_ms: int
) -> AsyncIterator[tuple[asyncio.Task[None], list[list[int]]]]:
    """Read in batches; yield the task and its records."""
    got: list[list[int]] = []

    async def read() -> None:
        async for batch in consumer.batches(max_wait_ms=max_wait_ms):
            offsets = [record.offset for record in batch]
            got.append(offsets)

    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(read())
        try:
            yield reader, got
        finally:
            reader.cancel()


@simulated(range(3))
async def test_a_seek_while_a_batch_is_collected_does_not_end_the_loop() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 3)
        async with make_consumer(cluster) as consumer, batched(consumer, 5_000) as (reader, got):
            await asyncio.sleep(2)
            consumer.seek(AT, 3)
            await asyncio.sleep(5)
            assert not reader.done()
            assert got == []
            cluster.append("t", 0, 2)
            await asyncio.sleep(10)
            assert got == [[3, 4]]


@simulated(range(3))
async def test_a_partition_lost_while_a_batch_is_collected_does_not_end_the_loop() -> None:
    async with GroupCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 3)
        short = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
        async with (
            make_consumer(cluster, **short) as consumer,
            batched(consumer, 20_000) as (reader, got),
        ):
            await asyncio.sleep(2)
            cluster.freeze(1)
            await asyncio.sleep(30)
            assert not consumer.assignment
            assert not reader.done()
            cluster.thaw(1)
            await asyncio.sleep(60)
            assert got == [[0, 1, 2]]


@simulated(range(3))
async def test_a_batch_is_held_while_the_fence_is_closed() -> None:
    """A process that was suspended may have lost its partitions without a notification."""
    world = World(closed=False)
    batches = world.reading.batches(max_wait_ms=1_000)
    async with asyncio.TaskGroup() as tasks:
        batch = tasks.create_task(anext(batches, None))
        await asyncio.sleep(0.5)
        world.fence.deadline = 0
        await asyncio.sleep(1)
        assert not batch.done()
        world.lose()
        world.fence.deadline = float("inf")
    assert [message.offset for message in batch.result() or ()] == [100, 101, 102]


@simulated(range(3))
async def test_a_closed_channel_discards_a_batch_after_the_deadline() -> None:
    world = World(closed=False)
    batches = world.reading.batches(max_wait_ms=1_000)
    async with asyncio.TaskGroup() as tasks:
        batch = tasks.create_task(anext(batches, None))
        await asyncio.sleep(0.5)
        world.fence.deadline = 0
        world.channel.close()
    assert batch.result() is None
    assert await anext(batches, None) is None
    assert world.stream.finished() == {A: 0, B: 100}


class ControlledDeadLetters:
    """Dead letters that are written when a test allows the write."""

    def __init__(self) -> None:
        self.let = asyncio.Event()

    async def write(self, *_: object) -> None:
        await self.let.wait()


@simulated(range(3))
async def test_records_lost_during_a_dead_letter_write_are_not_in_the_batch() -> None:
    def refuse(value: bytes) -> object:
        made.append(value)
        return json.loads(b"{" if len(made) == 2 else b"{}")

    made: list[bytes] = []
    world, dead_letter_records = World(None, Deserializer(refuse, "odd")), ControlledDeadLetters()
    reading: Any = world.reading
    poison = reading._policy.poison._replace(policy="dead_letter", dead_letters=dead_letter_records)
    reading._policy = reading._policy._replace(poison=poison)
    batches = world.reading.batches(max_records=6)
    async with asyncio.TaskGroup() as tasks:
        batch = tasks.create_task(anext(batches, None))
        await asyncio.sleep(1)
        world.lose()
        dead_letter_records.let.set()
    assert [message.offset for message in batch.result() or ()] == [100, 101, 102]
