"""Highly compressed records of many partitions within a small budget."""

import asyncio
from collections.abc import AsyncIterable, Sequence
from typing import Any

import psutil
import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer import OffsetRange, RangeReader, Record, SimpleConsumer
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.real_apps import make_app
from tests.support.real_consumer import make_consumer

PARTITIONS, RECORDS, SIZE = 16, 6, 4 * 2**20  # 24 MiB of each partition, 384 MiB in all
ALLOWED = 150 * 2**20  # a body, the delivered records, and what an allocator keeps


async def write(kafka: KafkaHandle, topic: str, compression: str) -> None:
    """Write one batch of some kilobytes to each partition."""
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        compression_type=compression,
        max_batch_size=2 * RECORDS * SIZE,
        max_request_size=2 * RECORDS * SIZE,
    ) as producer:
        for partition in range(PARTITIONS):
            batch = producer.create_batch()
            for number in range(RECORDS):
                value = b"%d" % number + bytes(SIZE)
                assert batch.append(key=None, value=value, timestamp=None)
            sent = await producer.send_batch(batch, topic, partition=partition)
            await sent


class Memory:
    """The growth of this process's memory."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss

    def check(self) -> None:
        growth = self._process.memory_info().rss - self._before
        assert growth < ALLOWED, f"{growth >> 20} MiB more"


async def read_in_lockstep(streams: Sequence[AsyncIterable[Any]]) -> None:
    memory, seen = Memory(), 0
    iterators = [aiter(stream) for stream in streams]
    for number in range(RECORDS):
        for iterator in iterators:
            record = await anext(iterator)
            assert (record.offset, record.value[:1]) == (number, b"%d" % number)
            seen += 1
            del record
            memory.check()
    assert seen == PARTITIONS * RECORDS


@pytest.mark.parametrize(("compression", "budget"), [("lz4", 2**22), ("zstd", 2**20)])
async def test_streams_of_a_consumer_stay_within_the_memory_limit(
    kafka: KafkaHandle, compression: str, budget: int
) -> None:
    topic = await kafka.topic(partitions=PARTITIONS, config={"max.message.bytes": str(2**24)})
    await write(kafka, topic, compression)
    async with make_consumer(
        kafka, topic, group_id=kafka.group(), max_buffered_bytes=budget
    ) as consumer:
        streams = []
        async for stream in consumer.partitions():
            streams.append(stream)
            if len(streams) == PARTITIONS:
                break
        await read_in_lockstep(streams)


async def test_streams_without_a_group_stay_within_the_memory_limit(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=PARTITIONS)
    await write(kafka, topic, "zstd")
    servers = kafka.bootstrap_servers
    async with SimpleConsumer(servers) as simple:
        await read_in_lockstep([simple.read(topic, number) for number in range(PARTITIONS)])
    ranges = [OffsetRange(topic, number, 0, RECORDS) for number in range(PARTITIONS)]
    async with RangeReader(servers, max_buffered_bytes=2**20) as reader:
        await read_in_lockstep([reader.read(offset_range) for offset_range in ranges])


async def test_handlers_of_an_app_stay_within_the_memory_limit(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=PARTITIONS)
    await write(kafka, topic, "zstd")
    program = make_app(kafka, group_id=kafka.group(), max_buffered_bytes=2**20)
    memory, seen, done = Memory(), 0, asyncio.Event()

    @program.handler(topic, concurrency=4, max_in_flight_bytes=4 * SIZE)
    async def handle(record: Record) -> None:
        nonlocal seen
        await asyncio.sleep(0.01)  # other records are read meanwhile
        memory.check()
        seen += 1
        if seen == PARTITIONS * RECORDS:
            done.set()

    async with asyncio.timeout(120), program:
        await done.wait()
    assert seen == PARTITIONS * RECORDS
