"""New partitions and moved leaders, on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.group.classic.subscribed_topics import SubscribedTopics
from asyncconsumer.group.subscription import TopicSubscription
from asyncconsumer.net.discovery import PartitionNumbers, partitions_of
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

METADATA = 3  # the API key
EVERY_MS = 5000


@asynccontextmanager
async def fake() -> AsyncIterator[tuple[FakeCluster, KafkaClient]]:
    async with FakeCluster(Random(1)) as cluster:
        session = KafkaClient(
            cluster.config(), patience_ms=0, randomness=Random(2), opener=cluster.open
        )
        async with session:
            yield cluster, session


def metadata_requests(cluster: FakeCluster) -> int:
    return sum(broker.requests[METADATA] for broker in cluster.brokers.values())


class Growth:
    """A listener that stores the received updates."""

    def __init__(self) -> None:
        self.observed: list[PartitionNumbers] = []

    async def listen(self, session: KafkaClient, *topics: str) -> None:
        async for partitions in partitions_of(session.cluster, topics, EVERY_MS):
            self.observed.append(partitions)


@asynccontextmanager
async def growth(session: KafkaClient, *topics: str) -> AsyncIterator[Growth]:
    growth = Growth()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(growth.listen(session, *topics))
        await asyncio.sleep(1)
        yield growth
        task.cancel()


@simulated(seeds=range(10))
async def test_existing_partitions_are_reported_first_and_changes_later() -> None:
    async with fake() as (cluster, session):
        cluster.add_topic("a", 1)
        async with growth(session, "a", "b") as result:
            assert result.observed == [{"a": (0,)}]
            cluster.add_partitions("a", 3)
            await asyncio.sleep(5)
            assert result.observed[1:] == [{"a": (0, 1, 2)}]
            cluster.add_topic("b", 2)
            await asyncio.sleep(5)
            assert result.observed[2:] == [{"a": (0, 1, 2), "b": (0, 1)}]
            cluster.delete_topic("a")
            await asyncio.sleep(10)
            assert result.observed[3:] == []  # the broker may have old metadata
            await asyncio.sleep(25)
            assert result.observed[3:] == [{"b": (0, 1)}]


@simulated(seeds=range(10))
async def test_metadata_is_requested_at_the_given_interval() -> None:
    async with fake() as (cluster, session):
        cluster.add_topic("a", 1)
        async with growth(session, "a"):
            await asyncio.sleep(100)
            assert 18 <= metadata_requests(cluster) <= 22


@simulated(seeds=range(10))
async def test_known_partitions_are_kept_while_no_broker_answers() -> None:
    async with fake() as (cluster, session):
        cluster.add_topic("a", 2)
        async with growth(session, "a") as result:
            for node in cluster.brokers:
                cluster.black_hole(node)
            await asyncio.sleep(60)
            cluster.add_partitions("a", 4)
            for node in cluster.brokers:
                cluster.restore(node)
            await asyncio.sleep(30)
            assert result.observed == [{"a": (0, 1)}, {"a": (0, 1, 2, 3)}]


@simulated(seeds=range(10))
async def test_stale_metadata_removes_no_partition() -> None:
    async with fake() as (cluster, session):
        cluster.add_topic("a", 2)
        async with growth(session, "a") as result:
            cluster.go_stale(1)
            cluster.go_stale(2)
            cluster.add_partitions("a", 4)
            await asyncio.sleep(100)  # each refresh selects a random broker
            cluster.fail_next(METADATA, 5, times=3)  # a topic without a leader exists
            await asyncio.sleep(20)
            assert result.observed == [{"a": (0, 1)}, {"a": (0, 1, 2, 3)}]


@simulated(seeds=range(10))
async def test_a_broker_that_does_not_know_a_topic_removes_no_partition() -> None:
    async with fake() as (cluster, session):
        cluster.go_stale(1)
        cluster.add_topic("a", 2)
        async with growth(session, "a") as result:
            await asyncio.sleep(100)
            assert [update for update in result.observed if update] == [{"a": (0, 1)}]
            assert result.observed[-1]


@simulated(seeds=range(20))
async def test_a_leader_named_in_a_fetch_error_needs_no_metadata() -> None:
    """KIP-951: the old leader names the new one and its address."""
    tp = TopicPartition("a", 0)
    async with fake() as (cluster, session):
        cluster.add_topic("a", 1)
        cluster.append(*tp, 10)
        manager = FetchManager(
            session.brokers, session.cluster, FetchConfig(), EngineConfig(), randomness=Random(3)
        )
        async with manager:
            channel = manager.channel()
            manager.reconcile({tp: FetchTarget(channel, 0)})
            records = aiter(Stream(channel))
            for offset in range(10):
                assert (await anext(records)).offset == offset
            for node in (2, 3, 1, 3):
                before = metadata_requests(cluster)
                cluster.move_leader(tp, node)
                (offset,) = cluster.append(*tp, 1)
                async with asyncio.timeout(5):
                    assert (await anext(records)).offset == offset
                assert metadata_requests(cluster) == before
                assert manager.progress()[tp].node_id == node


@simulated(range(10))
async def test_a_group_leader_divides_recently_discovered_partitions() -> None:
    async with fake() as (cluster, session):
        cluster.add_topic("t", 2)
        topics = SubscribedTopics(
            session.cluster,
            TopicSubscription(["t"]),
            exclude_internal=True,
            refresh_seconds=EVERY_MS / 1000,
        )
        await topics.names()
        before = metadata_requests(cluster)
        assert await topics.partition_counts(["t"]) == {"t": 2}
        assert metadata_requests(cluster) == before
        cluster.add_partitions("t", 3)
        assert await topics.changed() is not None
        before = metadata_requests(cluster)
        assert await topics.partition_counts(["t"]) == {"t": 3}
        assert metadata_requests(cluster) == before
        await asyncio.sleep(EVERY_MS / 1000)
        cluster.add_partitions("t", 4)
        assert await topics.partition_counts(["t"]) == {"t": 4}
        cluster.add_topic("u", 1)
        assert await topics.partition_counts(["t", "u"]) == {"t": 4, "u": 1}
