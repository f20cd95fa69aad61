"""The producer on a fake cluster: withdrawn records, partitions, errors, and frame limits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer import Producer, TopicPartition
from asyncconsumer.config import ProducerConfig
from asyncconsumer.errors import (
    ClosedError,
    ConfigError,
    FrameTooLarge,
    NotEnoughReplicas,
    UnknownTopicOrPartition,
)
from asyncconsumer.protocol.produce import PRODUCE
from asyncconsumer.testing.fake_kafka.broker import Fate
from asyncconsumer.testing.fake_kafka.complete import CompleteCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.scripted_broker import Line, broker

pytestmark = pytest.mark.fast


@asynccontextmanager
async def open_producer(
    *, topic_partitions: int | None = None, **options: Any
) -> AsyncIterator[tuple[CompleteCluster, Producer]]:
    async with CompleteCluster(Random(1), brokers=1, topic_partitions=topic_partitions) as cluster:
        cluster.add_topic("t", 1)
        config = ProducerConfig.from_options(bootstrap_servers=cluster.bootstrap_servers, **options)
        async with Producer(
            config=config, randomness=Random(1), opener=cluster.open, now_ms=cluster.now_ms
        ) as producer:
            yield cluster, producer


def written(cluster: CompleteCluster) -> list[bytes | None]:
    return [record.value for record in cluster.committed_records(TopicPartition("t", 0))]


@simulated(seeds=range(5))
async def test_batches_keep_their_order_if_the_first_one_fails() -> None:
    numbers = [b"%03d" % number for number in range(100)]
    async with open_producer(max_batch_bytes=200) as (cluster, producer):
        cluster.fail_next(PRODUCE.key, NotEnoughReplicas.code, times=1)
        for number in numbers:
            await producer.send("t", number)
        await producer.flush()
        assert written(cluster) == numbers


@pytest.mark.parametrize("linger_ms", [0, 600_000])
@simulated(seeds=range(5))
async def test_a_withdrawn_record_is_not_written_and_other_records_are(linger_ms: int) -> None:
    """The batch may be open for more records, or sent and failed."""
    async with open_producer(linger_ms=linger_ms) as (cluster, producer):
        await producer.send("t", b"first")
        await producer.flush()
        cluster.fail_next(PRODUCE.key, NotEnoughReplicas.code, times=5)
        deliveries = [await producer.send("t", b"%d" % n) for n in range(5)]
        while linger_ms == 0 and producer.last_error("t") is None:
            await asyncio.sleep(0.02)
        for n in (0, 3):
            producer.withdraw(deliveries[n])
            producer.withdraw(deliveries[n])
        last = await producer.send("t", b"last")
        cluster.forget_troubles()
        await producer.flush()
        assert written(cluster) == [b"first", b"1", b"2", b"4", b"last"]
        assert [(await deliveries[n]).offset for n in (1, 2, 4)] == [1, 2, 3]
        assert (await last).offset == 4
        for n in (0, 3):
            with pytest.raises(ClosedError, match="withdrawn"):
                await deliveries[n]
        assert producer._buffer.used == 0
        producer.withdraw(last)
        assert (await last).offset == 4


@simulated(seeds=range(5))
async def test_a_record_in_flight_is_withdrawn_if_it_fails() -> None:
    async with open_producer() as (cluster, producer):
        await producer.send("t", b"first")
        await producer.flush()
        cluster.lose_next(PRODUCE.key, Fate.LOST_BEFORE)
        delivery = await producer.send("t", b"withdrawn")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        producer.withdraw(delivery)
        assert not delivery.done()
        await producer.send_and_wait("t", b"last")
        assert written(cluster) == [b"first", b"last"]
        assert isinstance(delivery.error, ClosedError)


@simulated(seeds=[1])
async def test_a_record_of_a_transaction_cannot_be_withdrawn() -> None:
    async with open_producer(transactional_id="x") as (_, producer), producer.transaction():
        delivery = await producer.send("t", b"v")
        with pytest.raises(ConfigError, match="abort"):
            producer.withdraw(delivery)


@simulated(seeds=range(3))
async def test_the_last_error_of_waiting_records_is_reported() -> None:
    async with open_producer() as (cluster, producer):
        assert await producer.partitions_for("t") == [0]
        cluster.kill(1)
        assert producer.last_error("t") is None
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(10)
        assert "Connection refused" in str(producer.last_error("t"))
        cluster.start(1)
        await delivery
        assert producer.last_error("t") is None


@pytest.mark.parametrize("created", [False, True])
@simulated(seeds=range(3))
async def test_partitions_for_a_missing_topic_creates_it_or_fails(created: bool) -> None:
    async with open_producer(topic_partitions=2 if created else None) as (_, producer):
        if created:
            assert await producer.partitions_for("new") == [0, 1]
        else:
            with pytest.raises(UnknownTopicOrPartition, match="new"):
                await producer.partitions_for("new")


@pytest.mark.parametrize("greeted", [False, True], ids=["the first frame", "a later frame"])
async def test_a_frame_that_is_too_large_is_not_read(greeted: bool) -> None:
    async def play(line: Line) -> None:
        if greeted:
            await line.greet({3: (4, 8), 18: (0, 0), 22: (0, 1), 0: (3, 8)})
        await line.asked()
        line.send((2**30).to_bytes(4, "big") + bytes(100))
        await line.until_closed()

    async with (
        broker(play) as address,
        Producer(bootstrap_servers=str(address), max_frame_bytes=2**20) as producer,
    ):
        with pytest.raises(FrameTooLarge):
            await producer.send("t", b"v")
