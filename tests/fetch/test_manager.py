"""The fetch manager: many brokers, pauses, ranges, several managers."""

import asyncio
from random import Random

import pytest

from asyncconsumer.config import EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.protocol.messages import EARLIEST
from asyncconsumer.records import decoding
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.worlds.fetch import engine_on

pytestmark = pytest.mark.fast

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
FETCH = 1  # the API key


def fetches(cluster: FakeCluster) -> int:
    return sum(broker.requests[FETCH] for broker in cluster.brokers.values())


async def delivers_immediately(
    cluster: FakeCluster, records: decoding.AsyncRecords, partitions: list[TopicPartition]
) -> None:
    """Check that each appended record is delivered without a wait."""
    for tp in partitions:
        await asyncio.sleep(0.337)  # not a multiple of the time of a poll
        (offset,) = cluster.append(*tp, 1)
        async with asyncio.timeout(0.1):
            record = await anext(records)
        assert (record.partition, record.offset) == (tp.partition, offset)


# --- many brokers, or none -----------------------------------------------------------------------


@simulated(range(2))
async def test_records_of_many_idle_brokers_are_delivered_immediately() -> None:
    """Polls of idle brokers do not exhaust the budget, so that no poll waits for another."""
    every = [TopicPartition("a", number) for number in range(24)]
    async with FakeCluster(Random(1), brokers=24) as cluster:
        cluster.add_topic("a", 24, replicas=1)
        for tp in every:
            cluster.append(*tp, 1)
        async with engine_on(cluster) as manager:
            channel = manager.channel()
            manager.reconcile({tp: FetchTarget(channel, 0) for tp in every})
            records = aiter(Stream(channel))
            async with asyncio.timeout(5):
                first = [(await anext(records)).partition for _ in every]
            assert sorted(first) == list(range(24))
            await delivers_immediately(cluster, records, every * 2)


@simulated(range(2))
async def test_a_partition_without_a_leader_does_not_shorten_polls_forever() -> None:
    """Polls are short only while a partition may get its leader at any moment."""
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 1)
        async with engine_on(cluster) as manager:
            channel = manager.channel()
            missing = TopicPartition("missing", 0)
            manager.reconcile({A0: FetchTarget(channel, 0), missing: FetchTarget(channel, 0)})
            await asyncio.sleep(30)
            before = fetches(cluster)
            await asyncio.sleep(60)
            assert fetches(cluster) - before <= 150  # at 500 ms each there are 120


# --- paused and removed partitions ---------------------------------------------------------------


@simulated(range(2))
async def test_a_paused_partition_delivers_only_the_rest_of_its_chunk() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 1)
        for _ in range(3):
            cluster.append(*A0, 10, batches=1)
        async with engine_on(cluster, FetchConfig(max_partition_fetch_bytes=100)) as manager:
            channel = manager.channel()
            manager.reconcile({A0: FetchTarget(channel, 0)})
            records = aiter(Stream(channel))
            await anext(records)
            await asyncio.sleep(5)
            assert A0 in channel  # more was fetched
            manager.reconcile({A0: FetchTarget(channel, 0, paused=True)})
            assert [(await anext(records)).offset for _ in range(9)] == list(range(1, 10))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await anext(records)
            manager.reconcile({A0: FetchTarget(channel, 0)})
            assert (await anext(records)).offset == 10


@simulated(range(2))
async def test_a_removed_partition_is_not_acknowledged() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 1)
        cluster.append(*A0, 10)
        async with engine_on(cluster) as manager:
            channel = manager.channel()
            stream = Stream(channel)
            manager.reconcile({A0: FetchTarget(channel, 0)})
            await anext(aiter(stream))
            manager.reconcile({})
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await anext(aiter(stream))
            assert stream.finished().get(A0, 0) <= 1


# --- ranges --------------------------------------------------------------------------------------


@simulated(range(2))
async def test_a_stream_of_ranges_ends_after_the_last_range() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 2)
        cluster.append(*A0, 10)
        cluster.append(*A1, 10)
        async with engine_on(cluster) as manager:
            channel = manager.channel()
            manager.reconcile(
                {A0: FetchTarget(channel, 0, end=5), A1: FetchTarget(channel, 3, end=4)}
            )
            async with asyncio.timeout(20):
                got = sorted(
                    [(record.partition, record.offset) async for record in Stream(channel)]
                )
            assert got == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 3)]


@simulated(range(2))
async def test_the_removal_of_a_fetched_range_reopens_the_channel() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 1)
        cluster.append(*A0, 10)
        async with engine_on(cluster) as manager:
            channel = manager.channel()
            manager.reconcile({A0: FetchTarget(channel, 0, end=5)})
            await asyncio.sleep(20)
            assert [channel.closed] == [True]
            manager.reconcile({})
            assert [channel.closed] == [False]  # no record was read
            manager.reconcile({A0: FetchTarget(channel, 2, epoch=1, end=5)})
            async with asyncio.timeout(20):
                assert [record.offset async for record in Stream(channel)] == [2, 3, 4]


@simulated(range(2))
async def test_a_range_before_the_log_start_ends_immediately() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 1)
        cluster.append(*A0, 10)
        cluster.advance_log_start(A0, 10)
        async with engine_on(cluster) as manager:
            channel = manager.channel()
            manager.reconcile({A0: FetchTarget(channel, EARLIEST, end=5)})
            async with asyncio.timeout(5):
                assert [record async for record in Stream(channel)] == []
            assert fetches(cluster) == 0


# --- managers that are opened and closed ---------------------------------------------------------


def manager_in(session: KafkaClient) -> FetchManager:
    return FetchManager(
        session.brokers, session.cluster, FetchConfig(), EngineConfig(), randomness=Random(3)
    )


def session_on(cluster: FakeCluster) -> KafkaClient:
    return KafkaClient(cluster.config(), patience_ms=0, randomness=Random(2), opener=cluster.open)


@simulated(range(2))
async def test_a_closed_manager_ends_readers() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 1)

        async def read(stream: Stream) -> None:
            assert [record async for record in stream] == []

        async with (
            asyncio.timeout(60),
            asyncio.TaskGroup() as group,  # the group waits for the readers
            engine_on(cluster) as manager,
        ):
            channel = manager.channel()
            manager.reconcile({A0: FetchTarget(channel, 0)})
            group.create_task(read(Stream(channel)))
            await asyncio.sleep(1)


@simulated(range(2))
async def test_a_closed_manager_leaves_no_connections() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster, session_on(cluster) as session:
        cluster.add_topic("a", 1)
        for _ in range(2):
            async with manager_in(session) as manager:
                manager.reconcile({A0: FetchTarget(manager.channel(), 0)})
                await asyncio.sleep(1)
                assert cluster.brokers[1].connections == 2
            await asyncio.sleep(1)
            assert cluster.brokers[1].connections == 1  # the session's own


@simulated(range(2))
async def test_managers_of_one_client_do_not_wait_for_polls_of_each_other() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster, session_on(cluster) as session:
        cluster.add_topic("a", 2)
        async with manager_in(session) as manager, manager_in(session) as two:
            channel = two.channel()
            manager.reconcile({A0: FetchTarget(manager.channel(), 0)})
            two.reconcile({A1: FetchTarget(channel, 0)})
            await asyncio.sleep(2)
            await delivers_immediately(cluster, aiter(Stream(channel)), [A1] * 20)


@simulated(range(5))
async def test_a_partition_removed_before_its_offset_lookup_is_not_read() -> None:
    """The task of the lookup has not run yet, and must not use the cursor."""
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("a", 2)
        cluster.append("a", 1, 5)
        async with engine_on(cluster) as manager:
            channel = manager.channel()
            manager.reconcile({A0: FetchTarget(channel, 0)})  # leaders are known afterwards
            await asyncio.sleep(1)
            manager.reconcile({A0: FetchTarget(channel, 0), A1: FetchTarget(channel, EARLIEST)})
            manager.reconcile({A0: FetchTarget(channel, 0)})
            await asyncio.sleep(5)
            assert channel.pop_now() is None
