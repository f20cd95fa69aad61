"""A member that loses its partitions during a revocation, on virtual time."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_outages import QUICK, Hanging, reading, until, world
from tests.support.fake_consumer import make_consumer

pytestmark = pytest.mark.fast

EAGER = {**QUICK, "partition_assignment_strategy": "range"}
COOPERATIVE = {**QUICK, "partition_assignment_strategy": "cooperative-sticky"}
IMPATIENT = {"rebalance_timeout_ms": 5_000, "revoke_grace_ms": 0}


class Slow:
    """A listener that commits late, after other members got its partitions."""

    def __init__(self, seconds: float) -> None:
        self.observed: list[tuple[str, int]] = []
        self.committed: list[dict[TopicPartition, int]] = []
        self.consumer: Consumer[Any, Any] | None = None
        self._seconds = seconds

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.observed.append(("assigned", len(partitions)))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.observed.append(("revoked", len(partitions)))
        await asyncio.sleep(self._seconds)
        if self.consumer is not None:
            self.committed.append(await self.consumer.commit())

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.observed.append(("lost", len(partitions)))


def fill(cluster: GroupCluster, partitions: int) -> None:
    for number in range(partitions):
        cluster.append("t", number, 2000, batches=20)


@simulated([1, 2])
async def test_a_commit_in_a_listener_after_the_loss_of_all_partitions_is_empty() -> None:
    async with world() as cluster:
        fill(cluster, 2)
        slow = Slow(12)
        async with (
            make_consumer(cluster, listener=slow, **EAGER, **IMPATIENT) as consumer,
            reading(consumer, 0.05) as got,
        ):
            await until(lambda: len(got) > 5)
            slow.consumer = consumer
            async with make_consumer(cluster, **EAGER, **IMPATIENT) as two, reading(two, 0.05) as _:
                await until(lambda: bool(slow.committed))
                assert slow.committed == [{}]
                assert consumer.counts["dropped commits"] >= 2
                slow.consumer = None
                await until(lambda: len(consumer.assignment) == len(two.assignment) == 1)


@simulated([1, 2])
async def test_a_manual_commit_after_the_loss_of_all_partitions_does_not_fail() -> None:
    async with world(3) as cluster:
        fill(cluster, 3)
        slow = Slow(12)
        options = {**COOPERATIVE, **IMPATIENT}
        left_out = 0

        async def read(consumer: Consumer[Any, Any]) -> None:
            nonlocal left_out
            async for record in consumer:
                await asyncio.sleep(3)
                left_out += not await consumer.commit(record)

        async with (
            make_consumer(cluster, listener=slow, enable_auto_commit=False, **options) as consumer,
            asyncio.TaskGroup() as tasks,
        ):
            task = tasks.create_task(read(consumer))
            await asyncio.sleep(3)
            async with make_consumer(cluster, **options):
                await asyncio.sleep(2)
                async with make_consumer(
                    cluster, **options
                ):  # the coordinator does not wait for the slow member
                    await until(lambda: ("lost", 2) in slow.observed)
            assert 0 < left_out <= consumer.counts["dropped commits"]
            task.cancel()


@simulated([1, 2])
async def test_a_slow_revocation_delivers_no_record_after_the_new_owner_reads() -> None:
    now = asyncio.get_running_loop().time
    times: dict[int, dict[int, list[float]]] = {}
    options = {**COOPERATIVE, **IMPATIENT, "auto_commit_interval_ms": 500}

    async def read(consumer: Consumer[Any, Any], number: int) -> None:
        async for record in consumer:
            times.setdefault(record.partition, {}).setdefault(number, []).append(now())

    async def write(cluster: GroupCluster) -> None:
        while True:
            for number in range(3):
                cluster.append("t", number, 1)
            await asyncio.sleep(0.05)

    async with world(3) as cluster, asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(write(cluster))]
        async with make_consumer(cluster, listener=Slow(30), **options) as consumer:
            background.append(tasks.create_task(read(consumer, 1)))
            await asyncio.sleep(3)
            async with make_consumer(cluster, **options) as two:
                background.append(tasks.create_task(read(two, 2)))
                await asyncio.sleep(5)  # the other member is to get one partition
                async with make_consumer(
                    cluster, **options
                ) as three:  # the coordinator does not wait for the slow member
                    background.append(tasks.create_task(read(three, 2)))
                    await asyncio.sleep(10)
                    for task in background:
                        task.cancel()
    assert [sorted(by) for _, by in sorted(times.items())] == [[1, 2]] * 3
    assert all(max(by[1]) < min(by[2]) for by in times.values())


@simulated([1, 2])
@pytest.mark.parametrize("own", [True, False], ids=["a store of the user's", "kafka"])
async def test_partitions_lost_while_a_record_is_processed_are_not_revoked(own: bool) -> None:
    async with world() as cluster:
        fill(cluster, 2)
        retained: dict[TopicPartition, int] = {}
        store = {"offsets": Hanging(retained)} if own else {}
        options = {**EAGER, "rebalance_timeout_ms": 60_000, "revoke_grace_ms": 20_000, **store}
        slow = Slow(0)
        async with (
            make_consumer(cluster, listener=slow, **options) as consumer,
            reading(consumer, 30) as got,
        ):
            await until(lambda: bool(got))
            async with make_consumer(cluster, **options) as two, reading(two, 1) as _:
                await asyncio.sleep(3)
                cluster.black_hole(1)
                await asyncio.sleep(14)  # the session is over
                cluster.restore(1)
                await until(lambda: len(consumer.assignment) == len(two.assignment) == 1, 60)
            assert slow.observed[:3] == [("assigned", 2), ("lost", 2), ("assigned", 1)]
