"""The reservation of a fetch in the budget."""

import asyncio
from random import Random

import pytest

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

LIMIT, UNIT = 64 * 2**10, 4096


@simulated(range(20))
async def test_a_request_asks_for_no_more_than_is_free_and_not_for_crumbs() -> None:
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
                assert budget.used == LIMIT  # a request is on its way
                budget.take(2)  # and now there is less than a unit when it comes back
                await asyncio.sleep(5)
                assert budget.used == others + 2  # it is not worth to ask
                cluster.append("t", 0, 10)
                await asyncio.sleep(5)
                assert channel.pop_now() is None
                budget.give_back(others + 2)
                await asyncio.sleep(1)
                assert channel.pop_now() is not None
                assert budget.peak == LIMIT + 2
