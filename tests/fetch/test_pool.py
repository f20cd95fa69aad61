"""The fetchers of each broker and fetcher id, and their lifetime."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.protocol.messages import MetadataRequest
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

T = [TopicPartition("t", number) for number in range(4)]


@asynccontextmanager
async def engine(
    brokers: int = 2, replicas: int = 1, **options: Any
) -> AsyncIterator[tuple[FakeCluster, FetchManager]]:
    async with FakeCluster(Random(1), brokers=brokers) as cluster:
        cluster.add_topic("t", len(T), replicas=replicas)
        session = KafkaClient(
            cluster.config(), patience_ms=0, opener=cluster.open, randomness=Random(2)
        )
        async with session:
            manager = FetchManager(
                session.brokers,
                session.cluster,
                FetchConfig(),
                EngineConfig(**options),
                randomness=Random(3),
            )
            async with manager:
                yield cluster, manager


def fetching(cluster: FakeCluster) -> dict[int, int]:
    """Return the number of connections to each broker, without the one for metadata."""
    return {node: broker.connections for node, broker in cluster.brokers.items()}


@simulated(range(10))
async def test_an_unused_fetcher_is_closed_and_created_again() -> None:
    async with engine(brokers=1) as (cluster, manager):
        channel = manager.channel()
        manager.reconcile({T[0]: FetchTarget(channel, 0)})
        await asyncio.sleep(2)
        assert fetching(cluster) == {1: 2}
        manager.reconcile({})
        await asyncio.sleep(10)
        assert fetching(cluster) == {1: 1}
        cluster.append("t", 0, 1)
        manager.reconcile({T[0]: FetchTarget(channel, 0, epoch=1)})
        assert await channel.pop() is not None


@simulated(range(10))
async def test_partitions_are_spread_over_fetchers_like_in_the_classic_consumer() -> None:
    async with engine(brokers=1, num_consumer_fetchers=3) as (cluster, manager):
        channel = manager.channel()
        manager.reconcile({tp: FetchTarget(channel, 0) for tp in T})
        await asyncio.sleep(2)
        assert fetching(cluster) == {1: 4}  # t-0 and t-3 share a fetcher


@simulated(range(10))
async def test_a_broker_with_a_new_address_gets_a_new_fetcher() -> None:
    async with engine() as (cluster, manager):
        channel = manager.channel()
        manager.reconcile({tp: FetchTarget(channel, 0) for tp in T})
        await asyncio.sleep(2)
        cluster.change_address(2)
        for number in range(4):
            cluster.append("t", number, 5)
        result = set()
        async with asyncio.timeout(30):
            async for record in Stream(channel):
                result.add((record.partition, record.offset))
                if len(result) == 20:
                    break
        assert fetching(cluster)[2] >= 1


@simulated(range(10))
async def test_a_partition_with_a_known_leader_needs_no_metadata() -> None:
    async with engine(brokers=1) as (cluster, manager):
        channel = manager.channel()
        manager.reconcile({T[0]: FetchTarget(channel, 0)})
        await asyncio.sleep(2)
        metadata_requests = cluster.brokers[1].requests[MetadataRequest.API_KEY]
        cluster.append("t", 1, 1)
        manager.reconcile({T[0]: FetchTarget(channel, 0), T[1]: FetchTarget(channel, 0)})
        assert await channel.pop() is not None
        assert cluster.brokers[1].requests[MetadataRequest.API_KEY] == metadata_requests


@simulated(range(10))
@pytest.mark.parametrize("number", [0, 1], ids=["after a seek", "after a rebalance"])
async def test_a_new_position_does_not_wait_for_an_obsolete_poll(
    number: int,
) -> None:
    async with engine(brokers=1) as (cluster, manager):
        cluster.append("t", number, 5)
        end = cluster.end(T[0])
        channel, now = manager.channel(), asyncio.get_running_loop().time
        for times in range(3):
            manager.reconcile({T[0]: FetchTarget(channel, end, epoch=2 * times)})
            await asyncio.sleep(6.1)  # polls of half a second each
            if number:
                manager.reconcile({})
            manager.reconcile({T[number]: FetchTarget(channel, 0, epoch=2 * times + 1)})
            before = now()
            assert await channel.pop() is not None
            assert now() - before < 0.2
            assert fetching(cluster) == {1: 2}


@simulated(range(3))
async def test_repeated_seeks_reuse_connections() -> None:
    async with engine(brokers=1) as (_, manager):
        channel, brokers = manager.channel(), manager._context.brokers
        before = brokers.new_slot()
        for epoch in range(200):
            manager.reconcile({T[0]: FetchTarget(channel, 0, epoch=epoch)})
            await asyncio.sleep(0.1)
        assert 2 <= brokers.new_slot() - before - 1 <= 5


@simulated(range(10))
async def test_a_moved_leader_is_found() -> None:
    async with engine(replicas=2) as (cluster, manager):
        channel = manager.channel()
        manager.reconcile({T[0]: FetchTarget(channel, 0)})
        await asyncio.sleep(2)
        cluster.move_leader(T[1], 3 - cluster.leader(T[1]))
        cluster.append("t", 1, 1)
        manager.reconcile({T[0]: FetchTarget(channel, 0), T[1]: FetchTarget(channel, 0)})
        async with asyncio.timeout(30):
            assert await channel.pop() is not None
