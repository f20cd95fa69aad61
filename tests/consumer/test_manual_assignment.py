"""Manual assignment, manual resets, and the wait for an assignment."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer import EARLIEST, LATEST, ConfigError, Consumer, TopicPartition
from asyncconsumer.consumer.health import HealthState
from asyncconsumer.errors import ListenerFailed, NoCommittedOffset, SubscriptionConflict
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_consumer import coordinating, environment, make_consumer

pytestmark = pytest.mark.fast

A, B, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@asynccontextmanager
async def cluster_of_ten() -> AsyncIterator[FakeCluster]:
    """Yield a cluster with topics t (two partitions) and u (one), ten records in each partition."""
    async with GroupCluster(Random(1)) as cluster:
        fill(cluster)
        yield cluster


def fill(cluster: FakeCluster) -> None:
    cluster.add_topic("t", 2)
    cluster.add_topic("u", 1)
    for tp in (A, B, OTHER):
        cluster.append(*tp, 10)


async def take(reader: Consumer[Any, Any], count: int) -> list[tuple[int, int]]:
    """Return partition and offset of the next records."""
    results: list[tuple[int, int]] = []
    async with asyncio.timeout(60):
        async for record in reader:
            results.append((record.partition, record.offset))
            if len(results) == count:
                break
    return results


# --- K1: assign ----------------------------------------------------------------------------------


@simulated([1, 2, 3])
async def test_partitions_of_the_constructor_are_assigned_at_the_start() -> None:
    async with (
        cluster_of_ten() as cluster,
        make_consumer(cluster, (), partitions=[A, B]) as consumer,
    ):
        assert consumer.assignment == {A, B}
        consumer.seek(A, 5)
        consumer.pause(B)
        assert await consumer.position(A) == 5
        assert consumer.paused == {B}
        assert await take(consumer, 2) == [(0, 5), (0, 6)]


@simulated([1, 2, 3])
async def test_partitions_are_assigned_when_assign_returns() -> None:
    async with cluster_of_ten() as cluster, make_consumer(cluster, (), partitions=[A]) as consumer:
        await consumer.assign([OTHER])
        assert consumer.assignment == {OTHER}
        consumer.seek(OTHER, 8)
        assert await take(consumer, 1) == [(0, 8)]
        await consumer.assign([])
        assert consumer.assignment == frozenset()


@simulated([1, 2, 3])
async def test_assign_in_a_loop_does_not_wait_for_its_record() -> None:
    async with (
        cluster_of_ten() as cluster,
        make_consumer(cluster, (), partitions={A: 3}) as consumer,
    ):
        seen: list[tuple[int, int]] = []
        async for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 1:
                async with asyncio.timeout(1):
                    await consumer.assign({B: 7})
            elif len(seen) == 3:
                async with asyncio.timeout(1):
                    await consumer.assign([A, B])
            elif len(seen) == 6:
                break
        assert seen[:3] == [(0, 3), (1, 7), (1, 8)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@simulated([1, 2, 3])
async def test_wait_assigned_in_a_loop_does_not_block_the_rebalance(protocol: Any) -> None:
    async with coordinating(protocol) as cluster:
        fill(cluster)
        async with make_consumer(cluster, group_protocol=protocol) as consumer:
            async for _ in consumer:
                await consumer.subscribe("u")
                async with asyncio.timeout(6):
                    assert await consumer.wait_assigned() == {OTHER}
                break
            assert set((await consumer.committed([A, B])).values()) <= {0, None}


@simulated([1, 2])
@pytest.mark.parametrize("group", [None, "g"])
async def test_assign_accepts_start_offsets(group: str | None) -> None:
    async with cluster_of_ten() as cluster:
        value = {A: 7, OTHER: LATEST}
        async with make_consumer(cluster, (), partitions=value, group_id=group) as consumer:
            assert await consumer.position(A) == 7
            assert await consumer.position(OTHER) == 10
            await consumer.assign({A: 3, B: EARLIEST, OTHER: None})  # A is sought, the others kept
            assert await consumer.position(A) == 3
            assert await consumer.position(B) == 0
            assert await consumer.position(OTHER) == 10
            consumer.pause(B, OTHER)
            assert await take(consumer, 2) == [(0, 3), (0, 4)]


@simulated([1])
async def test_a_start_offset_overrides_the_committed_offset() -> None:
    async with cluster_of_ten() as cluster:
        async with make_consumer(cluster, (), partitions=[A]) as consumer:
            await consumer.commit({A: 4})
        value = {A: 8, B: None}
        async with make_consumer(
            cluster, (), partitions=value, enable_auto_commit=False
        ) as consumer:
            assert await consumer.position(A) == 8
        async with make_consumer(cluster, (), partitions={A: None}) as consumer:
            assert await consumer.position(A) == 4


@pytest.mark.parametrize("offset", [-3, True, "5", 1.5])
def test_invalid_start_offsets_are_refused(offset: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be assigned at offset"):
        Consumer(bootstrap_servers="k:9092", partitions={A: offset})


@simulated([1])
async def test_assign_in_a_listener_does_not_wait_for_the_listener() -> None:
    class Assigns:
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            if A in partitions:
                await consumer.assign([OTHER])

    async with (
        cluster_of_ten() as cluster,
        make_consumer(cluster, (), listener=Assigns()) as consumer,
    ):
        await consumer.assign([A])
        async with asyncio.timeout(5):
            assert await consumer.wait_assigned() == {OTHER}


# --- K2: no reset --------------------------------------------------------------------------------


@simulated([1, 2, 3])
@pytest.mark.parametrize("way", ["seek", "seek_to_beginning", "seek_to_end", "commit"])
async def test_a_partition_without_an_offset_is_read_after_a_seek(way: str) -> None:
    async with (
        cluster_of_ten() as cluster,
        make_consumer(cluster, ("u",), auto_offset_reset="none") as consumer,
    ):
        with pytest.raises(NoCommittedOffset, match=r"u\[0\].*seek"):
            await take(consumer, 1)
        assert consumer.assignment == {OTHER}
        health = consumer.health()
        assert (health.state, health.ready) == (HealthState.STALLED, False)
        assert "u[0]" in (health.reason or "")
        with pytest.raises(NoCommittedOffset):
            await consumer.position(OTHER)
        match way:
            case "seek":
                consumer.seek(OTHER, 6)
            case "seek_to_beginning":
                consumer.seek_to_beginning(OTHER)
            case "seek_to_end":
                consumer.seek_to_end(OTHER)
                assert await consumer.position(OTHER) == 10
                cluster.append(*OTHER, 1)
            case "commit":
                await consumer.commit({OTHER: 9})
                await consumer.subscribe("u")
        first = {"seek": 6, "seek_to_beginning": 0, "seek_to_end": 10, "commit": 9}[way]
        assert await take(consumer, 1) == [(0, first)]


@simulated([1, 2])
async def test_other_partitions_are_read_while_one_has_no_offset() -> None:
    async with cluster_of_ten() as cluster:
        async with make_consumer(cluster, (), partitions=[A]) as consumer:
            await consumer.commit({A: 5})
        async with make_consumer(cluster, auto_offset_reset="none") as consumer:
            seen: list[tuple[int, int]] = []
            errors: list[NoCommittedOffset] = []
            while len(seen) < 5:
                try:
                    seen += await take(consumer, 1)
                except NoCommittedOffset as error:
                    errors.append(error)
            assert seen == [(0, n) for n in range(5, 10)]
            assert [error.partition for error in errors] == [B]
            consumer.seek_to_beginning(B)
            assert await take(consumer, 1) == [(1, 0)]


@simulated([1])
async def test_a_partition_without_an_offset_raises_in_its_own_stream() -> None:
    async with (
        cluster_of_ten() as cluster,
        make_consumer(cluster, (), partitions={A: 2, B: None}, auto_offset_reset="none") as a,
    ):
        async for stream in a.partitions():
            if stream.partition == A:
                assert (await anext(aiter(stream))).offset == 2
            else:
                with pytest.raises(NoCommittedOffset):
                    await anext(aiter(stream))
                a.seek(B, 3)
                assert (await anext(aiter(stream))).offset == 3
                break


@simulated([1])
async def test_the_error_of_a_partition_that_is_revoked_is_not_raised() -> None:
    async with (
        cluster_of_ten() as cluster,
        make_consumer(cluster, (), partitions=[A], auto_offset_reset="none") as consumer,
    ):
        await consumer.assign({B: 0})
        assert await take(consumer, 1) == [(1, 0)]


@simulated([1])
async def test_a_failed_consumer_can_subscribe_again() -> None:
    class Fails:
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            raise OSError("disk full")

    async with cluster_of_ten() as cluster:
        listener = Fails()
        async with make_consumer(cluster, ("u",), listener=listener) as consumer:
            with pytest.raises(ListenerFailed):
                await take(consumer, 1)
            consumer.remove_listener(listener)
            await consumer.subscribe("u")
            assert await take(consumer, 1) == [(0, 0)]


# --- K5: wait_assigned ---------------------------------------------------------------------------


@simulated([1, 2, 3])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_wait_assigned_waits_for_the_current_subscription(protocol: str) -> None:
    async with coordinating(protocol) as cluster:
        fill(cluster)
        async with make_consumer(cluster, group_protocol=protocol) as consumer:
            assert await consumer.wait_assigned() == {A, B}
            await consumer.subscribe("u")
            assert await consumer.wait_assigned() == {OTHER}
            await consumer.subscribe("u", "t")
            assert await consumer.wait_assigned() == {A, B, OTHER}
            await consumer.subscribe(pattern="t")
            assert await consumer.wait_assigned() == {A, B}
            assert consumer.subscription() == {"t"}


@simulated([1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"group_protocol": "classic"},
        {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"},
        {"group_protocol": "consumer"},
    ],
    ids=["eager", "cooperative", "consumer"],
)
async def test_wait_assigned_waits_for_the_assignment_of_a_second_member(
    options: dict[str, Any],
) -> None:
    async with coordinating(options["group_protocol"]) as cluster:
        fill(cluster)
        async with make_consumer(cluster, **options) as consumer:
            assert await consumer.wait_assigned() == {A, B}
            second = make_consumer(cluster, **options, environment=environment(cluster, 3))
            async with second as two:
                share = await two.wait_assigned()
                assert len(share) == 1
                assert share | consumer.assignment == {A, B}
                third = make_consumer(cluster, **options, environment=environment(cluster, 4))
                async with third as three:  # no partition is left for this member
                    results = await three.wait_assigned()
                    assert len(results | consumer.assignment | two.assignment) == 2
                    assert not results or not (consumer.assignment and two.assignment)


@simulated([1])
async def test_wait_assigned_raises_the_error_that_prevents_the_assignment() -> None:
    class Fails:
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            raise OSError("disk full")

    async with cluster_of_ten() as cluster, make_consumer(cluster, listener=Fails()) as consumer:
        with pytest.raises(ListenerFailed):
            await consumer.wait_assigned()


@simulated([1, 2, 3])
async def test_a_second_subscribe_waits_for_the_first() -> None:
    async with (
        cluster_of_ten() as cluster,
        make_consumer(cluster, ()) as consumer,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(consumer.subscribe("t"))
        await asyncio.sleep(0)
        await consumer.subscribe("u")
        assert await consumer.wait_assigned() == {OTHER}


@simulated([1])
async def test_assign_after_subscribe_is_refused() -> None:
    async with cluster_of_ten() as cluster, make_consumer(cluster) as consumer:
        with pytest.raises(SubscriptionConflict):
            await consumer.assign([A])
        await consumer.subscribe(pattern="u")  # but a pattern may replace topics
        assert await consumer.wait_assigned() == {OTHER}


# --- without a group -----------------------------------------------------------------------------


@simulated([1, 2])
async def test_topics_and_new_partitions_are_read_without_a_group() -> None:
    async with FakeCluster(Random(1), brokers=2) as cluster:
        fill(cluster)
        options: dict[str, Any] = {"group_id": None, "metadata_refresh_ms": 100}
        async with (
            make_consumer(cluster, **options) as consumer,
            make_consumer(cluster, **options, environment=environment(cluster, 3)) as two,
        ):
            assert consumer.assignment == two.assignment == {A, B}
            assert sorted(await take(consumer, 20)) == sorted(await take(two, 20))
            cluster.add_partitions("t", 3)
            cluster.append("t", 2, 1)
            assert await take(consumer, 1) == await take(two, 1) == [(2, 0)]
            await consumer.subscribe("u")
            assert consumer.assignment == {OTHER}
            assert consumer.subscription() == {"u"}
            with pytest.raises(ConfigError, match="group_id"):
                await consumer.commit()


@simulated([1, 2])
async def test_a_pattern_is_read_without_a_group(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with FakeCluster(Random(1), brokers=2) as cluster:
        fill(cluster)
        options: dict[str, Any] = {"group_id": None, "metadata_refresh_ms": 100}
        async with make_consumer(cluster, (), pattern="u|v.*", **options) as consumer:
            assert consumer.assignment == {OTHER}
            assert consumer.subscription() == {"u"}
            cluster.add_topic("v2", 1)
            cluster.append("v2", 0, 3)
            assert len(await take(consumer, 13)) == 13
            assert consumer.subscription() == {"u", "v2"}
            assert await consumer.topics() == {"t", "u", "v2"}
