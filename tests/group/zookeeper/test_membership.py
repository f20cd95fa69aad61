"""ZooKeeper members: topics without offsets, manual changes in ZooKeeper, failures."""

import asyncio
from typing import Any

import pytest

from asyncconsumer.errors import MemberExists
from asyncconsumer.testing.fake_kafka import RecordPayload
from asyncconsumer.testing.fake_zookeeper import Fate
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.consumer.test_connector import T0, T1, Fakes, fakes, joined

pytestmark = pytest.mark.fast

LATEST: Any = {"auto_offset_reset": "largest"}


async def next_offset(stream: Any) -> int:
    async with asyncio.timeout(30):
        record = await anext(stream)
    offset: int = record.offset
    return offset


async def create_group_nodes(world: Fakes) -> None:
    """Create the nodes of a group that had members before."""
    async with world.connector("before") as connector:
        await joined(connector)


# --- where reading began -------------------------------------------------------------------------


@simulated(range(3))
async def test_the_start_position_is_kept_over_a_restart_without_records() -> None:
    async with fakes(1) as world:
        world.cluster.append("t", 0, 5)
        async with world.connector(**LATEST) as connector:
            await joined(connector)
            await asyncio.sleep(5)
        world.cluster.append("t", 0, 3)  # while no member runs
        async with world.connector(**LATEST) as connector:
            assert await next_offset(await joined(connector)) == 5


@simulated(range(3))
async def test_records_written_during_a_rebalance_are_not_skipped() -> None:
    async with fakes(2) as world, world.connector("m1", **LATEST) as connector:
        await joined(connector)
        await asyncio.sleep(3)
        async with world.connector("m2", **LATEST) as two, asyncio.TaskGroup() as group:
            joining = group.create_task(joined(two))
            while world.owner(T1) == "g_m1-0":
                await asyncio.sleep(0.001)
            world.cluster.append("t", 1, 3)
            assert await next_offset(await joining) == 0


@simulated(range(3))
async def test_a_stream_that_is_cleared_before_it_is_read_skips_no_record() -> None:
    async with fakes(1) as world:
        world.cluster.append("t", 0, 5)
        async with world.connector(**LATEST) as connector:
            stream = await joined(connector)
            await asyncio.sleep(2)
            world.cluster.append("t", 0, 3)
            await asyncio.sleep(2)
            stream.clear()
            await asyncio.sleep(2)
            assert await next_offset(stream) == 5


@simulated(range(2))
async def test_a_recreated_topic_is_read_and_committed() -> None:
    async with fakes(1) as world:
        for _ in range(2):
            world.cluster.append("t", 0, 100)
        async with world.connector(fetch_message_max_bytes=1000) as connector:
            stream = await joined(connector)
            for offset in range(10):
                assert await next_offset(stream) == offset
            await asyncio.sleep(3)
            world.cluster.recreate_topic("t")
            world.cluster.append("t", 0, 5)
            await asyncio.sleep(
                10
            )  # the topic is known to be re-created, and old records are dropped
            for offset in range(5):
                record = await anext(stream)
                assert (RecordPayload.of(record.value).incarnation, record.offset) == (2, offset)
            await asyncio.sleep(5)
            assert world.committed(T0) == 4


# --- outages and manual changes in ZooKeeper -----------------------------------------------------


@simulated(range(3))
async def test_a_rebalance_that_failed_in_an_outage_is_repeated() -> None:
    async with fakes(2) as world, world.connector() as connector:
        stream = await joined(connector)
        world.cluster.append("t", 0, 1)
        assert await next_offset(stream) == 0
        world.cluster.kill(1)
        world.register("other", "another topic")
        await asyncio.sleep(30)
        world.cluster.start(1)
        await asyncio.sleep(30)
        world.cluster.append("t", 0, 1)
        assert await next_offset(stream) == 1


@simulated(range(3))
async def test_a_resolved_rebalance_failure_is_not_raised() -> None:
    async with fakes(1) as world:
        await create_group_nodes(world)
        world.create("/consumers/g/owners/t/0", b"g_other-0")
        async with world.connector(rebalance_backoff_ms=200) as connector:
            stream = await joined(connector)
            assert world.owner(T0) == "g_other-0"  # the claim failed, which would be raised
            world.delete("/consumers/g/owners/t/0")
            await asyncio.sleep(60)
            assert world.owner(T0) == "g_m-0"
            world.cluster.append("t", 0, 1)
            assert await next_offset(stream) == 0


@simulated(range(3))
async def test_a_member_whose_node_was_deleted_registers_again() -> None:
    async with fakes(2) as world, world.connector("m5") as connector:
        await joined(connector)
        world.delete("/consumers/g/ids/g_m5")
        world.register("m1")
        await asyncio.sleep(30)
        assert sorted(world.members()) == ["g_m1", "g_m5"]
        assert (world.owner(T0), world.owner(T1)) == (None, "g_m5-0")


@simulated(range(3))
async def test_an_interrupted_claim_is_released_after_a_new_assignment() -> None:
    async with fakes(1) as world:
        world.cluster.add_topic("u", 1)
        await create_group_nodes(
            world
        )  # "t" can be claimed immediately, and "u" needs a node first
        lost: list[str | None] = []

        def on_write(session_id: int, request: Any) -> Fate:
            if getattr(request, "path", "") == "/consumers/g/owners/u" and not lost:
                lost.append(world.owner(T0))
                world.register("a")  # sorts before "m"
                return Fate.LOST_BEFORE
            return Fate.DONE

        world.zookeeper.on_write = on_write
        async with world.connector() as connector:
            await connector.create_message_streams({"t": 1, "u": 1})
            await asyncio.sleep(60)
            assert lost == ["g_m-0"]
            assert (world.owner(T0), world.owner(TopicPartition("u", 0))) == (None, "g_m-0")


# --- calls that are cancelled or fail ------------------------------------------------------------


@simulated(range(3))
async def test_a_cancelled_join_leaves_no_node_and_can_be_repeated() -> None:
    async with fakes(1) as world, world.connector() as connector:
        async with asyncio.TaskGroup() as group:
            making = group.create_task(joined(connector))
            while world.owner(T0) is None:
                await asyncio.sleep(0.0001)
            making.cancel()
        assert (world.members(), world.owner(T0)) == ([], None)
        stream = await joined(connector)
        world.cluster.append("t", 0, 1)
        assert await next_offset(stream) == 0


@simulated(range(3))
async def test_a_member_can_join_after_its_consumer_id_is_free() -> None:
    async with fakes(1) as world, world.connector() as first, world.connector() as second:
        await joined(first)
        with pytest.raises(MemberExists):
            await joined(second)
        await first.shutdown()
        stream = await joined(second)
        world.cluster.append("t", 0, 1)
        assert await next_offset(stream) == 0


@simulated(range(3))
async def test_a_cancelled_shutdown_ends_streams() -> None:
    async with (
        fakes(1) as world,
        world.connector() as connector,
        asyncio.timeout(60),
        asyncio.TaskGroup() as group,  # the group waits for the readers
    ):
        stream = await joined(connector)

        async def read() -> None:
            assert [record async for record in stream] == []

        group.create_task(read())
        await asyncio.sleep(1)
        leaving = group.create_task(connector.shutdown())
        while connector.consumer_id is not None:
            await asyncio.sleep(0)
        leaving.cancel()
