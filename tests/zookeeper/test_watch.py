"""Watches, which miss no change between two reads."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from asyncconsumer.errors import ConnectionLoss
from asyncconsumer.testing.fake_zookeeper import FakeZooKeeper
from asyncconsumer.testing.virtual_time import simulated
from tests.testing.fake_zookeeper.test_ensemble import fake_session

if TYPE_CHECKING:
    from asyncconsumer.zookeeper.watch import Watch

pytestmark = pytest.mark.fast

SEEDS = range(30)


@simulated(SEEDS, limit=60)
async def test_a_watch_is_set_initially_and_by_changes() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1))
    async with fake_session(fake) as zk, fake_session(fake, 1) as other:
        with zk.watch_data("/n") as data, zk.watch_children("/n") as children:
            assert data.changed.is_set()
            assert await data.read() is None
            assert await children.read() is None
            assert not data.changed.is_set()
            await other.create("/n", b"1")
            await data.changed.wait()
            await children.changed.wait()
            node = await data.read()
            assert node is not None
            assert node.data == b"1"
            assert await children.read() == []
            await other.create("/n/c")
            await children.changed.wait()
            assert not data.changed.is_set()
            assert await children.read() == ["c"]
            await other.set("/n", b"2")
            await data.changed.wait()
            assert not children.changed.is_set()


@simulated(SEEDS, limit=60)
async def test_a_failed_or_cancelled_read_leaves_the_watch_set() -> None:
    fake = FakeZooKeeper(randomness=Random(1))
    async with fake_session(fake, connection_timeout_ms=3_000) as zk:
        with zk.watch_exists("/n") as watch:
            await watch.read()
            fake.stop()
            with pytest.raises(ConnectionLoss):
                await watch.read()
            assert watch.changed.is_set()
            fake.start()
            await watch.read()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.0001):
                    await watch.read()
            assert watch.changed.is_set()


@simulated(SEEDS, limit=60)
async def test_every_watch_is_set_by_a_reconnect_and_by_a_new_session() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1))
    async with fake_session(fake) as zk:
        await zk.create("/n")
        watches: list[Watch[Any]] = [zk.watch_data("/n"), zk.watch_children("/n")]
        watches.append(zk.watch_exists("/none"))
        for session_too in (False, True):
            for watch in watches:
                await watch.read()
            await asyncio.sleep(1)
            assert not any(watch.changed.is_set() for watch in watches)
            if session_too:
                fake.expire(zk.session_id)
            else:
                fake.cut()
            for watch in watches:
                await watch.changed.wait()
            assert zk.connected.is_set()


@simulated(SEEDS, limit=60)
async def test_every_open_watch_of_a_node_is_set() -> None:
    fake = FakeZooKeeper(randomness=Random(1))
    async with fake_session(fake) as zk:
        await zk.create("/n")
        first, second, remaining = (zk.watch_data("/n") for _ in range(3))
        for watch in (first, second, remaining):
            await watch.read()
        remaining.close()
        remaining.close()
        assert len(zk.watches) == 2
        await zk.set("/n", b"")
        await first.changed.wait()
        await second.changed.wait()
        assert not remaining.changed.is_set()
        await first.read()  # a read does not clear the other watch
        assert second.changed.is_set()
        first.close()
        second.close()
        assert len(zk.watches) == 0


@simulated(range(100), limit=60)
async def test_a_change_during_a_read_is_read_or_sets_the_watch() -> None:
    fake = FakeZooKeeper(randomness=Random(1), latency=(0.001, 0.01))
    async with (
        fake_session(fake) as zk,
        fake_session(fake, 1) as other,
        asyncio.TaskGroup() as group,
    ):
        await zk.create("/n", b"0")

        async def write() -> None:
            for number in range(1, 20):
                await other.set("/n", b"%d" % number)

        group.create_task(write())
        with zk.watch_data("/n") as watch:
            value: bytes | None = None
            while value != b"19":
                await watch.changed.wait()
                node = await watch.read()
                value = node.data if node else None


@simulated(SEEDS, limit=60)
async def test_a_node_recreated_during_a_read_is_not_missed() -> None:
    fake = FakeZooKeeper(randomness=Random(1), latency=(0.001, 0.01))
    async with (
        fake_session(fake) as zk,
        fake_session(fake, 1) as other,
        asyncio.TaskGroup() as group,
    ):

        async def recreate() -> None:
            for _ in range(10):
                await other.create("/n")
                await other.delete("/n")
            await other.create("/n", b"end")

        group.create_task(recreate())
        with zk.watch_data("/n") as data, zk.watch_children("/n") as children:
            while (node := await data.read()) is None or node.data != b"end":
                await data.changed.wait()
            while await children.read() is None:
                await children.changed.wait()
