"""Offset lookups of many partitions: number of requests, and errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer.errors import NotLeader, TopicAccessDenied, UnknownTopicOrPartition
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.list_offsets import OffsetLookup, list_offsets
from asyncconsumer.protocol.messages import EARLIEST, LATEST, MAX_TIMESTAMP
from asyncconsumer.spark.source.client import Client
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import OffsetAndTimestamp, TopicPartition
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast

LIST_OFFSETS, METADATA = 2, 3
NOT_LEADER, DENIED = 6, 29


def all_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


@asynccontextmanager
async def session_on(cluster: FakeCluster, patience_ms: int = 60_000) -> AsyncIterator[KafkaClient]:
    opened = KafkaClient(
        cluster.config(), patience_ms=patience_ms, opener=cluster.open, randomness=Random(2)
    )
    async with opened as session:
        yield session


def requests(cluster: FakeCluster, api: int = LIST_OFFSETS) -> list[int]:
    """Return how many requests each broker received."""
    return [broker.requests[api] for broker in cluster.brokers.values()]


@simulated([1])
async def test_a_consumer_sends_one_request_to_each_broker() -> None:
    async with GroupCluster(Random(1), brokers=3) as cluster:
        cluster.add_topic("t", 1)
        cluster.add_topic("many", 500)
        cluster.add_topic("others", 500)
        both = all_of("many", 500) + all_of("others", 500)
        cluster.append("many", 7, 10)
        async with make_consumer(cluster) as consumer:
            await consumer.wait_assigned()
            await consumer.position(TopicPartition("t", 0))
            before, asked = requests(cluster), requests(cluster, METADATA)
            ends = await consumer.end_offsets(both)
            assert requests(cluster) == [count + 1 for count in before]
            assert sum(requests(cluster, METADATA)) == sum(asked) + 1
            assert await consumer.beginning_offsets(both) == dict.fromkeys(both, 0)
            assert requests(cluster) == [count + 2 for count in before]
            await consumer.offsets_for_times(dict.fromkeys(both, 0))
            assert requests(cluster) == [count + 3 for count in before]
            assert ends == dict.fromkeys(both, 0) | {both[7]: 10}


@simulated([1])
async def test_stop_at_end_sends_one_request_to_each_broker() -> None:
    async with GroupCluster(Random(1), brokers=3) as cluster:
        cluster.add_topic("t", 300)
        begin = dict.fromkeys(all_of("t", 300), 0)  # only the ends are requested
        async with make_consumer(cluster, (), partitions=begin, stop_at="end") as consumer:
            assert requests(cluster) == [1, 1, 1]
            assert [record async for record in consumer] == []


@simulated([1])
async def test_offsets_for_times_returns_offset_and_timestamp() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 2)
        first, second = all_of("t", 2)
        cluster.append("t", 0, 10)
        async with make_consumer(cluster) as consumer:
            await consumer.wait_assigned()
            oldest = (await consumer.offsets_for_times({first: 0}))[first]
            assert oldest is not None
            assert oldest.offset == 0
            moment = oldest.timestamp + 4  # records are a millisecond apart
            assert await consumer.offsets_for_times({first: moment, second: moment}) == {
                first: OffsetAndTimestamp(4, moment),
                second: None,
            }
            assert await consumer.offsets_for_times({second: 0, first: 2**42}) == {
                first: None,
                second: None,
            }


@simulated([1])
@pytest.mark.parametrize("cached", [False, True])
async def test_a_missing_partition_is_reported_after_one_metadata_refresh(
    cached: bool,
) -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 2)
        async with make_consumer(cluster) as consumer:
            for read in await consumer.wait_assigned():
                await consumer.position(read)
            if cached:
                await consumer.end_offsets(all_of("t", 2))
            asked, start = requests(cluster, METADATA), asyncio.get_running_loop().time()
            for call in (consumer.end_offsets, consumer.beginning_offsets):
                with pytest.raises(UnknownTopicOrPartition, match=r"t\[2\].* 2 partitions"):
                    await call([TopicPartition("t", 0), TopicPartition("t", 2)])
            with pytest.raises(UnknownTopicOrPartition, match=r"t\[9\]"):
                await consumer.offsets_for_times({TopicPartition("t", 9): 0})
            assert asyncio.get_running_loop().time() - start < 1
            assert sum(requests(cluster, METADATA)) <= sum(asked) + 3
            cluster.add_partitions("t", 3)
            added = TopicPartition("t", 2)
            assert await consumer.end_offsets([added]) == {added: 0}, (
                "the partition must not be remembered as missing"
            )


@simulated(range(5))
async def test_a_missing_topic_is_awaited_for_two_seconds() -> None:
    async with FakeCluster(Random(1)) as cluster, session_on(cluster) as session:
        loop = asyncio.get_running_loop()
        start, tp = loop.time(), TopicPartition("later", 0)
        with pytest.raises(UnknownTopicOrPartition, match="later"):
            await list_offsets(session.leaders, {tp: LATEST})
        assert 2 <= loop.time() - start < 4
        loop.call_later(1, cluster.add_topic, "later")
        assert await list_offsets(session.leaders, {tp: LATEST}) == {tp: (0, -1)}


@simulated(range(20))
async def test_only_partitions_with_moved_leaders_are_requested_again() -> None:
    async with FakeCluster(Random(1)) as cluster, session_on(cluster) as session:
        cluster.add_topic("t", 30)
        every = all_of("t", 30)
        for number in range(30):
            cluster.append("t", number, number)
        await session.leaders.find_all(every)
        moved = [tp for tp in every if cluster.leader(tp) == 1]
        for tp in moved:
            cluster.move_leader(tp, 2)
        result = await list_offsets(session.leaders, dict.fromkeys(every, LATEST))
        assert {tp: timestamp.offset for tp, timestamp in result.items()} == {
            tp: tp.partition for tp in every
        }
        assert requests(cluster) == [1, 2, 1]


@simulated(range(20))
async def test_a_stopped_broker_delays_only_its_own_partitions() -> None:
    async with FakeCluster(Random(1)) as cluster, session_on(cluster) as session:
        cluster.add_topic("t", 30)
        every = all_of("t", 30)
        await session.leaders.find_all(every)
        cluster.kill(1)
        result = await list_offsets(session.leaders, dict.fromkeys(every, EARLIEST))
        assert result.keys() == set(every)


@simulated([1])
async def test_offsets_received_before_an_error_are_kept() -> None:
    async with FakeCluster(Random(1)) as cluster, session_on(cluster) as session:
        cluster.add_topic("t", 3)
        every = all_of("t", 3)
        cluster.fail_next(LIST_OFFSETS, DENIED, node_id=2)
        lookup = OffsetLookup(session.leaders, dict.fromkeys(every, LATEST))
        with pytest.raises(TopicAccessDenied):
            await lookup.run()
        assert lookup.offsets.keys() == {tp for tp in every if cluster.leader(tp) != 2}


@simulated([1])
async def test_a_persistent_error_is_raised_after_the_retry_time() -> None:
    async with FakeCluster(Random(1)) as cluster, session_on(cluster, 5_000) as session:
        cluster.add_topic("t", 1)
        cluster.fail_next(LIST_OFFSETS, NOT_LEADER, times=1000)
        start = asyncio.get_running_loop().time()
        with pytest.raises(NotLeader):
            await list_offsets(session.leaders, {TopicPartition("t", 0): LATEST})
        assert 5 <= asyncio.get_running_loop().time() - start < 8


@simulated([1])
async def test_each_partition_may_have_its_own_timestamp() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster, session_on(cluster) as session:
        cluster.add_topic("t", 4)
        for number in range(4):
            cluster.append("t", number, 10)
        moments = dict(zip(all_of("t", 4), (EARLIEST, LATEST, 2**42, MAX_TIMESTAMP), strict=True))
        result = await list_offsets(session.leaders, moments)
        assert [result[tp].offset for tp in moments] == [0, 10, -1, 9]
        assert requests(cluster) == [1]


@simulated([1])
async def test_spark_sends_one_request_to_each_broker() -> None:
    async with FakeCluster(Random(1)) as cluster:
        cluster.add_topic("t", 100)
        client: Any = Client({"bootstrap.servers": cluster.bootstrap_servers})
        client._session = KafkaClient(
            cluster.config(), patience_ms=60_000, opener=cluster.open, randomness=Random(2)
        )
        async with client._session:
            result = await client.latest(all_of("t", 100))
        assert result == dict.fromkeys(all_of("t", 100), 0)
        assert requests(cluster) == [1, 1, 1]
