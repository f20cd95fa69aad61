"""The replica in the rack of the consumer and its faults, on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster, fetching
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.worlds.fetch import engine_on

pytestmark = pytest.mark.fast

AT = TopicPartition("a", 0)
LEADER, NEAR = 1, 2


class Reading:
    """A partition that broker 1 leads, read from broker 2, which is in the same rack."""

    def __init__(self, cluster: FakeCluster, manager: FetchManager) -> None:
        self.cluster = cluster
        channel = manager.channel()
        manager.reconcile({AT: FetchTarget(channel, 0)})
        self._manager = manager
        self._records = aiter(Stream(channel))

    @property
    def node(self) -> int | None:
        return self._manager.progress()[AT].node_id

    async def next_comes_within(self, seconds: float) -> None:
        (offset,) = self.cluster.append(*AT, 1)
        async with asyncio.timeout(seconds):
            assert (await anext(self._records)).offset == offset


@asynccontextmanager
async def reading() -> AsyncIterator[Reading]:
    async with FakeCluster(Random(1), racks=("x", "y", "z")) as cluster:
        cluster.add_topic("a", 1)
        session = KafkaClient(
            cluster.config(), patience_ms=0, randomness=Random(2), opener=cluster.open
        )
        async with session:
            manager = FetchManager(
                session.brokers,
                session.cluster,
                FetchConfig(client_rack="y"),
                EngineConfig(),
                randomness=Random(3),
            )
            async with manager:
                reading = Reading(cluster, manager)
                await reading.next_comes_within(5)
                assert (cluster.leader(AT), reading.node) == (LEADER, NEAR)
                yield reading


@simulated(seeds=range(20))
async def test_the_leader_is_read_while_the_replica_is_unreachable() -> None:
    async with reading() as reader:
        reader.cluster.black_hole(NEAR)
        await reader.next_comes_within(8)  # the cluster does not notice it
        assert reader.node == LEADER
        for _ in range(10):
            await reader.next_comes_within(1)
        reader.cluster.restore(NEAR)
        await asyncio.sleep(60)
        await reader.next_comes_within(5)
        assert reader.node == NEAR


@simulated(seeds=range(20))
async def test_a_replica_that_left_the_isr_is_replaced_by_the_leader() -> None:
    async with reading() as reader:
        reader.cluster.freeze(NEAR)
        reader.cluster.lose_replica(NEAR)
        await reader.next_comes_within(3)
        assert reader.node == LEADER


@simulated(seeds=range(20))
async def test_a_lagging_replica_is_avoided_for_some_time() -> None:
    async with reading() as reader:
        reader.cluster.go_stale(NEAR)
        reader.cluster.black_hole(NEAR)
        await reader.next_comes_within(8)
        reader.cluster.restore(NEAR)
        await asyncio.sleep(60)  # the replica was tried and did not have the offset yet
        before = reader.cluster.brokers[NEAR].requests[1]
        for _ in range(100):
            await asyncio.sleep(0.1)
            await reader.next_comes_within(1)
        assert reader.cluster.brokers[NEAR].requests[1] - before <= 2


@simulated(seeds=range(10))
async def test_the_leader_confirms_the_preferred_replica_at_intervals() -> None:
    async with reading() as reader:
        before = reader.cluster.brokers[LEADER].requests[1]
        await asyncio.sleep(400)
        assert 1 <= reader.cluster.brokers[LEADER].requests[1] - before <= 5
        assert reader.node == NEAR
        await reader.next_comes_within(1)


@simulated(seeds=range(5))
async def test_the_leader_is_read_instead_of_an_unknown_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "near_replica", lambda broker, offset, rack: 77 if rack else -1)
    async with FakeCluster(Random(1), racks=("x", "y", "z")) as cluster:
        cluster.add_topic("a", 1)
        async with engine_on(cluster, FetchConfig(client_rack="y")) as manager:
            channel = manager.channel()
            manager.reconcile({AT: FetchTarget(channel, 0)})
            cluster.append(*AT, 1)
            async with asyncio.timeout(5):
                assert (await anext(aiter(Stream(channel)))).offset == 0
            assert manager.progress()[AT].node_id == LEADER
