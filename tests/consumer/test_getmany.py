"""`getmany` and `getone` for all or for chosen partitions, on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer import TopicPartition
from asyncconsumer.errors import ClosedError, ConfigError, DeserializationFailed, NotAssigned
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_acknowledgement import committed
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@asynccontextmanager
async def world(a: int = 0, b: int = 0) -> AsyncIterator[GroupCluster]:
    async with GroupCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("t", 2)
        for tp, count in ((A, a), (B, b)):
            for _ in range(count):
                cluster.append("t", tp.partition, 1)
        yield cluster


def offsets(result: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[int]]:
    return {tp: [record.offset for record in records] for tp, records in result.items()}


async def everything(consumer: Any, *partitions: TopicPartition) -> dict[TopicPartition, list[int]]:
    """Return the records of all calls with a limit of two."""
    seen: dict[TopicPartition, list[int]] = {}
    while result := await consumer.getmany(*partitions, timeout_ms=5_000, max_records=2):
        assert sum(map(len, result.values())) <= 2
        for tp, existing in offsets(result).items():
            seen.setdefault(tp, []).extend(existing)
    return seen


@simulated([1, 2])
async def test_all_records_are_returned_once_and_in_order() -> None:
    async with world(5, 4) as cluster, make_consumer(cluster) as consumer:
        assert await everything(consumer) == {A: [0, 1, 2, 3, 4], B: [0, 1, 2, 3]}


@simulated([1, 2, 3])
async def test_each_record_is_listed_under_its_partition() -> None:
    async with (
        world(60, 60) as cluster,
        make_consumer(cluster, max_partition_fetch_bytes=200) as consumer,
    ):
        await consumer.wait_assigned()
        random, interleaved = Random(5), 0
        seen: dict[TopicPartition, list[int]] = {A: [], B: []}
        while result := await consumer.getmany(
            timeout_ms=20_000, max_records=random.choice([1, 3, 7, 50])
        ):
            interleaved += len(result) > 1
            for tp, records in result.items():
                assert {(r.topic, r.partition) for r in records} == {tuple(tp)}
                seen[tp] += [record.offset for record in records]
            await asyncio.sleep(random.choice([0, 3]))
        assert interleaved
        assert seen == {A: list(range(60)), B: list(range(60))}


@simulated([1])
async def test_a_call_without_a_timeout_returns_buffered_records_only() -> None:
    async with world(0, 0) as cluster, make_consumer(cluster) as consumer:
        began = asyncio.get_running_loop().time()
        assert await consumer.getmany() == {}
        assert asyncio.get_running_loop().time() == began
        cluster.append("t", 0, 3)
        await asyncio.sleep(5)  # for a fetch
        assert offsets(await consumer.getmany()) == {A: [0, 1, 2]}
        assert await consumer.getmany() == {}


@simulated([1])
async def test_a_call_waits_for_the_first_record_only() -> None:
    async with world() as cluster, make_consumer(cluster) as consumer:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await consumer.getmany(timeout_ms=700) == {}
        assert loop.time() - began == pytest.approx(0.7)
        loop.call_later(2, cluster.append, "t", 0, 1)
        assert offsets(await consumer.getmany(timeout_ms=60_000)) == {A: [0]}
        assert loop.time() - began < 10


@simulated([1])
async def test_calls_yield_to_other_tasks() -> None:
    async with (
        world(300, 300) as cluster,
        make_consumer(cluster, max_partition_fetch_bytes=1) as consumer,
    ):
        await asyncio.sleep(10)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            counting = tasks.create_task(count())
            for _ in range(200):
                await consumer.getmany(max_records=1)
            counting.cancel()
        assert turns > 1


@simulated([1, 2])
async def test_only_chosen_partitions_are_read() -> None:
    async with world(3, 4) as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        assert await everything(consumer, B) == {B: [0, 1, 2, 3]}
        assert committed(cluster) == 0
        cluster.append("t", 1, 1)
        assert (await consumer.getone(A)).offset == 0
        assert await everything(consumer, A) == {A: [1, 2]}
        assert await everything(consumer) == {B: [4]}


@simulated([1, 2])
async def test_the_rest_of_a_chunk_is_not_delivered_while_its_partition_is_not_chosen() -> None:
    async with world() as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        cluster.append("t", 0, 3)  # one chunk
        assert (await consumer.getone(A)).offset == 0
        for _ in range(3):
            assert await consumer.getmany(B) == {}
        assert offsets(await consumer.getmany(timeout_ms=50)) == {A: [1, 2]}


@simulated([1])
async def test_unread_partitions_do_not_exhaust_the_budget() -> None:
    async with GroupCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("t", 2)
        for _ in range(400):
            cluster.append("t", 1, 100)
        async with make_consumer(
            cluster, max_buffered_bytes=65_536, max_partition_fetch_bytes=8_000
        ) as consumer:
            await consumer.wait_assigned()
            await asyncio.sleep(30)  # the other partition is fetched as far as there is room
            assert await consumer.getmany(A) == {}
            for offset in range(20):
                cluster.append("t", 0, 1)
                result = await consumer.getmany(A, timeout_ms=60_000)
                assert offsets(result) == {A: [offset]}


@simulated([1])
async def test_a_loop_after_a_call_reads_all_partitions() -> None:
    async with world(2, 2) as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        await consumer.getmany(A, timeout_ms=5_000)
        await consumer.commit()
        seen = set()
        async for record in consumer:
            seen.add((record.partition, record.offset))
            if len(seen) == 2:
                break
        assert seen == {(1, 0), (1, 1)}


@simulated([1])
async def test_a_loop_redelivers_unacknowledged_records_of_a_call() -> None:
    async with world(3) as cluster, make_consumer(cluster) as consumer:
        assert offsets(await consumer.getmany(timeout_ms=5_000, max_records=2)) == {A: [0, 1]}
        async for record in consumer:
            assert record.offset == 0
            break


@simulated([1])
async def test_a_paused_partition_stays_paused() -> None:
    async with world(2, 2) as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        consumer.pause(A)
        assert await everything(consumer, A, B) == {B: [0, 1]}
        assert await everything(consumer, A) == {}
        assert consumer.paused == {A}
        consumer.resume(A)
        assert await everything(consumer) == {A: [0, 1]}


@simulated([1, 2, 3])
async def test_a_cancelled_call_loses_no_record() -> None:
    async with world(40, 40) as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        random = Random(4)
        seen: dict[TopicPartition, list[int]] = {A: [], B: []}

        async def call(*partitions: TopicPartition) -> None:
            for tp, existing in offsets(
                await consumer.getmany(*partitions, timeout_ms=500)
            ).items():
                seen[tp] += existing

        for _ in range(60):
            chosen = random.choice([(), (A,), (B,)])
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(call(*chosen))
                await asyncio.sleep(random.choice([0, 0, 0.001, 0.01]))
                task.cancel()
        await call()
        for _ in range(100):
            await call()
        assert sorted(set(seen[A])) == list(range(40))
        assert sorted(set(seen[B])) == list(range(40))


@simulated([1])
async def test_earlier_records_are_returned_before_a_deserialization_error() -> None:
    values: list[bytes] = []

    def numbered(data: bytes) -> int:
        if data not in values:
            values.append(data)
        if values.index(data) == 2:
            raise ValueError("the third value is bad")
        return values.index(data)

    async with world(4) as cluster, make_consumer(cluster, value_deserializer=numbered) as consumer:
        await asyncio.sleep(5)
        assert [m.value for m in (await consumer.getmany(timeout_ms=5_000))[A]] == [0, 1]
        with pytest.raises(DeserializationFailed):
            await consumer.getmany(timeout_ms=5_000)
        assert (await consumer.getone()).value == 3


@simulated([1])
async def test_invalid_calls_are_reported() -> None:
    async with world(1) as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        with pytest.raises(NotAssigned):
            await consumer.getmany(TopicPartition("t", 7))
        for wrong in ({"timeout_ms": -1}, {"max_records": 0}, {"timeout_ms": "1"}):
            with pytest.raises(ConfigError):
                await consumer.getmany(**wrong)
    async with world(1) as cluster, make_consumer(cluster) as consumer:
        [stream] = consumer.streams(1)
        with pytest.raises(ConfigError, match="streams"):
            await consumer.getmany()
        with pytest.raises(ConfigError, match="streams"):
            await stream.getone(A)
        assert (await stream.getone()).offset == 0
    async with world(1) as cluster, make_consumer(cluster, stop_at="end") as consumer:
        with pytest.raises(ConfigError, match="stop_at"):
            await consumer.getone()


@simulated([1])
async def test_a_waiting_call_ends_with_the_consumer() -> None:
    async with world() as cluster:
        consumer = make_consumer(cluster)
        async with asyncio.TaskGroup() as tasks, consumer:
            await consumer.wait_assigned()
            waiting = tasks.create_task(_ended(consumer))
            await asyncio.sleep(1)
        assert waiting.result()


async def _ended(consumer: Any) -> bool:
    with pytest.raises(ClosedError):
        await consumer.getone()
    return True
