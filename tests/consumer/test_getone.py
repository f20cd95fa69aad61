"""`getone` for records that are buffered already, on virtual time."""

import asyncio
from collections import defaultdict
from random import Random
from typing import Any

import pytest

from asyncconsumer.errors import ConcurrentRead, DeserializationFailed
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_acknowledgement import committed
from tests.consumer.test_getmany import A, B, world
from tests.support.fake_consumer import make_consumer
from tests.support.helpers import until

pytestmark = pytest.mark.fast


def step(consumer: Any) -> Any:
    """Return the result of a `getone` that has to finish without a wait."""
    call = consumer.getone()
    with pytest.raises(StopIteration) as done:
        call.send(None)
    return done.value.value


@simulated([1])
async def test_a_buffered_record_is_returned_without_a_wait() -> None:
    async with world() as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        cluster.append("t", 0, 4)  # one chunk
        assert (await consumer.getone()).offset == 0
        assert [step(consumer).offset for _ in range(3)] == [1, 2, 3]
        await consumer.commit()
        assert committed(cluster) == 4


@simulated([1])
async def test_the_record_in_flight_is_not_committed_until_the_next_call() -> None:
    async with world() as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        cluster.append("t", 0, 4)  # one chunk
        assert (await consumer.getone()).offset == 0
        for offset in (1, 2, 3):
            assert step(consumer).offset == offset
            await asyncio.sleep(10)  # for the auto-commit
            assert committed(cluster) == offset


@simulated(range(10))
async def test_calls_with_and_without_a_choice_return_each_record_once() -> None:
    async with (
        world(60, 60) as cluster,
        make_consumer(cluster, max_partition_fetch_bytes=200) as consumer,
    ):
        await consumer.wait_assigned()
        seen: dict[int, list[int]] = defaultdict(list)
        loop = asyncio.get_running_loop()
        random = Random(loop.time())
        while sum(map(len, seen.values())) < 120:
            chosen = random.choice([(), (), (A,), (B,)])
            if not chosen and random.random() < 0.7:
                records = [await consumer.getone()]
            else:
                result = await consumer.getmany(*chosen, max_records=3)
                records = [record for of_partition in result.values() for record in of_partition]
            for record in records:
                assert not chosen or record.partition == chosen[0].partition
                seen[record.partition].append(record.offset)
        assert seen == {0: list(range(60)), 1: list(range(60))}


@simulated([1, 2])
async def test_no_record_of_a_paused_partition_is_returned() -> None:
    async with world() as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        cluster.append("t", 0, 3)
        assert (await consumer.getone()).offset == 0
        consumer.pause(A)
        cluster.append("t", 1, 1)
        record = await consumer.getone()
        assert (record.partition, record.offset) == (1, 0)
        consumer.resume(A)
        assert [(await consumer.getone()).offset for _ in range(2)] == [1, 2]


@simulated([1, 2])
async def test_a_call_of_another_task_is_refused_while_a_record_is_in_flight() -> None:
    async with world() as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        cluster.append("t", 0, 3)
        reads, refused = asyncio.Event(), asyncio.Event()

        async def read() -> list[int]:
            offsets = [(await consumer.getone()).offset for _ in range(2)]
            reads.set()
            await refused.wait()
            return [*offsets, (await consumer.getone()).offset]

        async def disturb() -> None:
            await reads.wait()
            with pytest.raises(ConcurrentRead):
                await consumer.getone()
            refused.set()

        async with asyncio.TaskGroup() as group:
            reader = group.create_task(read())
            group.create_task(disturb())
        assert reader.result() == [0, 1, 2]


@simulated([1, 2])
async def test_a_loop_after_a_call_redelivers_the_record_in_flight() -> None:
    async with world() as cluster, make_consumer(cluster) as consumer:
        await consumer.wait_assigned()
        cluster.append("t", 0, 4)
        assert [(await consumer.getone()).offset for _ in range(2)] == [0, 1]
        async for record in consumer:
            assert record.offset == 1
            break
        assert (await consumer.getone()).offset == 2


@simulated([1, 2])
async def test_a_record_that_cannot_be_deserialized_is_raised_once() -> None:
    values: list[bytes] = []

    def number(data: bytes) -> int:
        if data not in values:
            values.append(data)
        if values.index(data) == 1:
            raise ValueError("the second value is bad")
        return values.index(data)

    async with world() as cluster, make_consumer(cluster, value_deserializer=number) as consumer:
        await consumer.wait_assigned()
        cluster.append("t", 0, 3)
        assert (await consumer.getone()).value == 0
        with pytest.raises(DeserializationFailed, match=r"t\[0\]@1"):
            await consumer.getone()
        assert (await consumer.getone()).value == 2


@simulated([1, 2, 3])
async def test_a_revoked_partition_is_committed_up_to_the_record_before() -> None:
    async with world() as cluster, make_consumer(cluster, revoke_grace_ms=100) as consumer:
        await consumer.wait_assigned()
        for partition in (0, 1):
            cluster.append("t", partition, 5)
        records = [await consumer.getone() for _ in range(3)]
        last = records[-1]
        async with make_consumer(cluster) as second:
            await until(lambda: bool(second.assignment))
            (moved,) = second.assignment
            rest = [record for record in records if record.partition == moved.partition]
            expected = max(len(rest) - (last.partition == moved.partition), 0)
            assert (await second.getone()).offset == expected
