"""The reservation of a fetch in the budget, and the shares of channels without data."""

import asyncio
from random import Random

import pytest

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

LIMIT, UNIT = 64 * 2**10, 4096


@simulated(range(20))
async def test_a_fetch_needs_a_free_unit_of_the_budget() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("t", 1)
        session = KafkaClient(
            cluster.config(), patience_ms=0, opener=cluster.open, randomness=Random(2)
        )
        config = EngineConfig(max_buffered_bytes=LIMIT)
        fetch = FetchConfig(max_partition_fetch_bytes=UNIT, fetch_max_bytes=16384)
        async with session:
            manager = FetchManager(
                session.brokers, session.cluster, fetch, config, randomness=Random(3)
            )
            async with manager:
                budget, channel = manager.budget, manager.channel()
                others = LIMIT - UNIT - 1  # held by other streams
                budget.take(others)
                manager.reconcile({TopicPartition("t", 0): FetchTarget(channel, 0)})
                await asyncio.sleep(0.3)
                assert budget.used == LIMIT  # a fetch is in flight
                budget.take(2)  # less than a unit is free after its response
                await asyncio.sleep(5)
                assert budget.used == others + 2  # no fetch reserves the rest
                cluster.append("t", 0, 10)
                await asyncio.sleep(5)
                assert channel.pop_now() is None
                budget.give_back(others + 2)
                await asyncio.sleep(1)
                assert channel.pop_now() is not None
                assert budget.peak == LIMIT + 2


@simulated(range(10))
async def test_many_streams_are_read_in_turn_within_the_budget() -> None:
    streams, records = 40, 60
    async with FakeCluster(Random(1), brokers=2) as cluster:
        cluster.add_topic("t", streams)
        for number in range(streams):
            cluster.append("t", number, records, batches=records, size=1000)
        session = KafkaClient(
            cluster.config(), patience_ms=0, opener=cluster.open, randomness=Random(2)
        )
        limit = 512 * 2**10  # a fifth of the data, and 13 batches for each stream
        config, fetch = EngineConfig(max_buffered_bytes=limit), FetchConfig()
        async with session:
            manager = FetchManager(
                session.brokers, session.cluster, fetch, config, randomness=Random(3)
            )
            async with manager:
                channels = [manager.channel() for _ in range(streams)]
                manager.reconcile(
                    {
                        TopicPartition("t", number): FetchTarget(channel, 0)
                        for number, channel in enumerate(channels)
                    }
                )
                iterators = [aiter(Stream(channel)) for channel in channels]
                for offset in range(records):
                    for iterator in iterators:
                        async with asyncio.timeout(30):
                            assert (await anext(iterator)).offset == offset
                assert manager.budget.peak <= limit


@simulated(range(3))
async def test_unread_streams_do_not_block_another_stream() -> None:
    streams = 40
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("t", streams)
        for number in range(streams - 1):
            cluster.append("t", number, 60, batches=60, size=1000)
        session = KafkaClient(
            cluster.config(), patience_ms=0, opener=cluster.open, randomness=Random(2)
        )
        config = EngineConfig(max_buffered_bytes=256 * 2**10)
        async with session:
            manager = FetchManager(
                session.brokers, session.cluster, FetchConfig(), config, randomness=Random(3)
            )
            async with manager:
                channels = [manager.channel() for _ in range(streams)]
                manager.reconcile(
                    {
                        TopicPartition("t", number): FetchTarget(channel, 0)
                        for number, channel in enumerate(channels)
                    }
                )
                await asyncio.sleep(20)
                assert not any(channel.has_room() for channel in channels[:-1])
                assert manager.budget.free <= 0
                late = aiter(Stream(channels[-1]))
                for offset in range(20):
                    cluster.append("t", streams - 1, 1)
                    async with asyncio.timeout(5):
                        assert (await anext(late)).offset == offset
