"""Corrupt logs on the disk of a real broker: good records, then one typed error."""

import asyncio
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer import Consumer, CorruptRecords, SimpleConsumer, TopicPartition
from asyncconsumer.fetch.direct.partition_stream import PartitionStream
from asyncconsumer.testing.servers import Kafka

GOOD, AFTER = 30, 20  # records before the corrupt batch, and after it


def flip_a_value(batch: bytearray) -> None:
    batch[-3] ^= 0xFF


def set_size_to_two_gigabytes(batch: bytearray) -> None:
    batch[8:12] = struct.pack(">i", 2**31 - 1)


def set_negative_size(batch: bytearray) -> None:
    batch[8:12] = struct.pack(">i", -5)


def set_magic_to_seven(batch: bytearray) -> None:
    batch[16] = 7


CORRUPTIONS = [flip_a_value, set_size_to_two_gigabytes, set_negative_size, set_magic_to_seven]


def corrupt_batch(log: Path, number: int, how: Callable[[bytearray], None]) -> None:
    """Corrupt one batch of a log file."""
    data, offset = bytearray(log.read_bytes()), 0
    for _ in range(number):
        offset += 12 + struct.unpack_from(">i", data, offset + 8)[0]
    size = 12 + struct.unpack_from(">i", data, offset + 8)[0]
    batch = data[offset : offset + size]
    how(batch)
    with log.open("r+b") as file:  # in place, as a failing disk would
        file.seek(offset)
        file.write(batch)


async def collect(
    stream: PartitionStream | Consumer[Any, Any], results: list[bytes | None]
) -> None:
    async for record in stream:
        results.append(record.value)  # noqa: PERF401 - keeps the records before an error


@pytest.fixture(scope="module")
def corrupt_kafka() -> Iterator[Kafka]:
    """Yield a broker whose logs were corrupted while it runs."""
    kafka = Kafka()

    async def prepare() -> None:
        await kafka.start()
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for how in CORRUPTIONS:
                await kafka.admin.create_topic(how.__name__)
                for number in range(GOOD + 1 + AFTER):
                    await producer.send_and_wait(how.__name__, b"%d" % number)
        data = kafka.brokers[1].process.log.parent / "data"
        for how in CORRUPTIONS:
            (log,) = (data / f"{how.__name__}-0").glob("*.log")
            corrupt_batch(log, GOOD, how)

    try:
        with asyncio.Runner() as runner:
            runner.run(prepare())
        yield kafka
    finally:
        with asyncio.Runner() as runner:
            runner.run(kafka.stop())


@pytest.mark.parametrize("how", CORRUPTIONS, ids=lambda how: how.__name__)
async def test_records_before_a_corrupt_batch_are_read_and_the_error_names_it(
    corrupt_kafka: Kafka, how: Callable[[bytearray], None]
) -> None:
    results: list[bytes | None] = []
    async with SimpleConsumer(corrupt_kafka.bootstrap_servers, retry_timeout_ms=2_000) as consumer:
        stream = consumer.read(how.__name__, 0, end=GOOD + 1 + AFTER)
        async with asyncio.timeout(30):
            with pytest.raises(CorruptRecords) as caught:
                await collect(stream, results)
    assert results == [b"%d" % number for number in range(GOOD)]
    assert (caught.value.topic, caught.value.partition) == (how.__name__, 0)
    assert caught.value.offset == GOOD


@pytest.mark.parametrize("how", CORRUPTIONS, ids=lambda how: how.__name__)
async def test_a_consumer_delivers_good_records_and_raises_corrupt_records(
    corrupt_kafka: Kafka, how: Callable[[bytearray], None]
) -> None:
    start = {TopicPartition(how.__name__, 0): 0}
    results: list[bytes | None] = []
    async with Consumer(
        partitions=start, bootstrap_servers=corrupt_kafka.bootstrap_servers
    ) as consumer:
        async with asyncio.timeout(30):
            with pytest.raises(CorruptRecords) as caught:
                await collect(consumer, results)
    assert results == [b"%d" % number for number in range(GOOD)]
    assert caught.value.offset == GOOD


async def test_records_after_a_corrupt_batch_can_be_read(corrupt_kafka: Kafka) -> None:
    topic = flip_a_value.__name__
    async with SimpleConsumer(corrupt_kafka.bootstrap_servers) as consumer:
        with pytest.raises(CorruptRecords) as caught:
            await collect(consumer.read(topic, 0), [])
        resume = caught.value.resume
        assert resume == GOOD + 1
        rest = [r.value async for r in consumer.read(topic, 0, resume, end=GOOD + 1 + AFTER)]
    assert rest == [b"%d" % number for number in range(GOOD + 1, GOOD + 1 + AFTER)]
