"""Features of other clients: poll limits, offsets without a subscription, log ends."""

import asyncio
import gc
import weakref
from random import Random
from typing import Any

import pytest

from asyncconsumer import ConfigError, Consumer, TopicPartition
from asyncconsumer.errors import PollIntervalExceeded
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import coordinating, environment, make_consumer
from tests.support.helpers import until

pytestmark = pytest.mark.fast

A = TopicPartition("t", 0)


@simulated([1, 2])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_consumer_that_exceeds_the_poll_interval_leaves_the_group(protocol: str) -> None:
    async with coordinating(protocol) as cluster:
        cluster.add_topic("t", 1)
        cluster.append(*A, 10)
        options: dict[str, Any] = {"group_protocol": protocol}
        async with make_consumer(cluster, **options, max_poll_interval_ms=5_000) as consumer:
            records = aiter(consumer)
            assert (await anext(records)).offset == 0
            second = make_consumer(cluster, **options, environment=environment(cluster, 3))
            async with second as two:
                assert (
                    await anext(aiter(two))
                ).offset == 0  # not acknowledged by the first consumer
                assert not consumer.assignment
                with pytest.raises(PollIntervalExceeded, match="max_poll_interval_ms"):
                    await anext(records)
                assert not consumer.health().live
            await consumer.subscribe("t")
            assert await consumer.wait_assigned() == {A}


@simulated([1])
async def test_waiting_and_paused_consumers_keep_the_poll_interval() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 2)
        cluster.append(*A, 10)
        async with make_consumer(cluster, max_poll_interval_ms=1_000) as consumer:
            async for record in consumer:
                if record.offset == 9:
                    break
                await asyncio.sleep(0.5)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(20):
                    await anext(aiter(consumer))
            consumer.pause(*consumer.assignment)
            cluster.append(*A, 10)
            await asyncio.sleep(20)
            assert consumer.health().live
            assert A in consumer.assignment


@simulated([1])
async def test_offsets_are_committed_and_read_without_a_subscription() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        async with make_consumer(cluster, ()) as consumer:
            assert await consumer.committed([A]) == {A: None}
            assert await consumer.commit({A: 3}) == {A: 3}
            assert await consumer.committed([A]) == {A: 3}
            assert await consumer.commit() == {}
            wrong: Any = 5
            with pytest.raises(ConfigError, match="cannot commit 5"):
                await consumer.commit(wrong)
        async with make_consumer(cluster, (), group_id=None) as consumer:
            with pytest.raises(ConfigError, match="without a `group_id`"):
                await consumer.committed([A])


@simulated([1])
async def test_log_ends_and_the_time_of_the_last_fetch_are_reported() -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append(*A, 5)
        async with make_consumer(cluster, (), partitions=[A]) as consumer:
            assert consumer.highwater(TopicPartition("u", 0)) is None
            await anext(aiter(consumer))
            assert consumer.highwater(A) == consumer.last_stable_offset(A) == 5
            await until(lambda: consumer.progress()[A].last_fetch is not None)
            last = consumer.progress()[A].last_fetch
            assert last is not None
            assert last < 60


@simulated([1])
@pytest.mark.parametrize("policy", ["auto", "manual"])
async def test_an_unclosed_consumer_causes_a_warning(policy: str) -> None:
    async with GroupCluster(Random(1)) as cluster:
        cluster.add_topic("t", 1)
        cluster.append(*A, 5)
        retained = [make_consumer(cluster, (), partitions=[A], commit_policy=policy)]
        await retained[0].__aenter__()
        await anext(aiter(retained[0]))
        gone, stack = weakref.ref(retained[0]), retained[0]._stack
        with pytest.warns(ResourceWarning, match="unclosed .*Consumer"):
            forget(retained)
        assert gone() is None
        await stack.aclose()
        retained.append(make_consumer(cluster, (), partitions=[A]))
        async with retained[0]:
            pass
        forget(retained)  # causes no warning, which would fail the test


def forget(retained: list[Consumer[Any, Any]]) -> None:
    retained.clear()
    gc.collect()
