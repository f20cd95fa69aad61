"""A seek does not wait for the end of a long poll."""

import asyncio
from random import Random

import pytest

from asyncconsumer.config import FetchConfig
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.fake_consumer import coordinating, make_consumer
from tests.support.worlds.fetch import engine_on

pytestmark = pytest.mark.fast
WAITS = FetchConfig(fetch_max_wait_ms=5_000)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@simulated(range(5))
async def test_a_record_after_a_seek_does_not_wait_for_the_poll_in_flight() -> None:
    loop = asyncio.get_running_loop()
    async with coordinating("classic") as cluster:
        cluster.add_topic("t", 2)
        cluster.append("t", 0, 5)
        async with make_consumer(cluster, fetch_max_wait_ms=5_000) as consumer:
            records = aiter(consumer)
            for _ in range(5):
                await anext(records)
            for n in range(10):
                await asyncio.sleep(0.3 * n)  # at some moment of a poll
                consumer.seek(A, n % 5)
                began = loop.time()
                assert (await anext(records)).offset == n % 5
                assert loop.time() - began < 0.1


@simulated(range(5))
async def test_a_partition_returns_to_its_fetcher_after_a_seek() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster, engine_on(cluster, WAITS) as engine:
        cluster.add_topic("t", 2)
        cluster.append("t", 0, 5)
        channel = engine.channel()
        requested = {A: FetchTarget(channel, 5), B: FetchTarget(channel, 0)}
        engine.reconcile(requested)
        await asyncio.sleep(2)
        engine.change({A: FetchTarget(channel, 0, epoch=1)})
        stream = aiter(Stream(channel))
        for offset in range(5):
            assert (await anext(stream)).offset == offset
        assert [len(fetcher.cursors) for fetcher in engine._pool] == [1, 1]
        await asyncio.sleep(5)
        assert [len(fetcher.cursors) for fetcher in engine._pool] == [2, 0]
        await asyncio.sleep(10)
        assert [len(fetcher.cursors) for fetcher in engine._pool] == [
            2
        ]  # the other fetcher was closed
        cluster.append("t", 0, 1)
        cluster.append("t", 1, 1)
        assert {(await anext(stream)).partition for _ in range(2)} == {0, 1}
