"""A slow reader of AIOKafkaConsumer's `RecordConsumer`, on virtual time."""

import asyncio
from random import Random
from typing import Any

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.compat.aiokafka_consumer import RecordConsumer
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import environment, make_consumer
from tests.support.helpers import until

pytestmark = pytest.mark.fast

A = TopicPartition("t", 0)


def slow_consumer(cluster: FakeCluster, **options: Any) -> RecordConsumer:
    return environment(cluster).run(
        RecordConsumer,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=50,
        max_poll_interval_ms=5_000,
        revoke_grace_ms=1_000,
        **options,
    )


async def owns_a(consumer: Consumer[Any, Any]) -> None:
    await until(lambda: consumer.assignment == {A})


@simulated([1, 2, 3])
async def test_a_slow_reader_releases_its_partitions_until_it_asks_again() -> None:
    async with GroupCluster(Random(1), brokers=1) as cluster, slow_consumer(cluster) as slow:
        cluster.add_topic("t", 1)
        cluster.append(*A, 10)
        await slow.subscribe("t")
        records = aiter(slow)
        for offset in range(3):  # each record takes longer than the interval
            assert (await anext(records)).offset == offset
            async with make_consumer(cluster, environment=environment(cluster, 3)) as other:
                await owns_a(other)
                assert not slow.assignment
                assert slow.member_id is not None
            await asyncio.sleep(20)
            assert not slow.assignment


@simulated([1, 2])
async def test_a_slow_reader_does_not_rewind_the_commits_of_the_next_owner() -> None:
    async with GroupCluster(Random(1), brokers=1) as cluster, slow_consumer(cluster) as slow:
        cluster.add_topic("t", 1)
        cluster.append(*A, 10)
        await slow.subscribe("t")
        records = aiter(slow)
        assert (await anext(records)).offset == 0
        async with make_consumer(cluster, environment=environment(cluster, 3)) as other:
            async for record in other:
                if record.offset == 4:
                    break
            await other.commit()
        assert (await anext(records)).offset == 5


@simulated([1])
async def test_a_slow_reader_without_auto_commit_commits_nothing() -> None:
    async with (
        GroupCluster(Random(1), brokers=1) as cluster,
        slow_consumer(cluster, enable_auto_commit=False) as slow,
    ):
        cluster.add_topic("t", 1)
        cluster.append(*A, 10)
        await slow.subscribe("t")
        records = aiter(slow)
        assert (await anext(records)).offset == 0
        await until(lambda: not slow.assignment)
        assert (await anext(records)).offset == 0
        assert await slow.committed([A]) == {A: None}


@simulated([1])
async def test_a_change_of_the_subscription_ends_the_suspension() -> None:
    async with GroupCluster(Random(1), brokers=1) as cluster, slow_consumer(cluster) as slow:
        for topic in ("t", "u"):
            cluster.add_topic(topic, 1)
            cluster.append(topic, 0, 10)
        await slow.subscribe("t")
        assert (await slow.getone()).offset == 0
        await until(lambda: not slow.assignment)
        await slow.subscribe("t", "u")
        await until(lambda: slow.assignment == {A, TopicPartition("u", 0)})


@simulated([1])
async def test_a_request_without_a_wait_ends_the_suspension() -> None:
    async with GroupCluster(Random(1), brokers=1) as cluster, slow_consumer(cluster) as slow:
        cluster.add_topic("t", 1)
        cluster.append(*A, 10)
        await slow.subscribe("t")
        assert (await slow.getone()).offset == 0
        await until(lambda: not slow.assignment)
        await slow.unsuspend()
        await until(lambda: slow.assignment == {A})
        assert (await slow.getone()).offset == 1
