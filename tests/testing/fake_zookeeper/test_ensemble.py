"""Sessions, lag and isolation of the fake ZooKeeper."""

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from aiozk.protocol.request import Request

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import ConfigError, ZooKeeperError
from asyncconsumer.testing.fake_zookeeper import FakeClient, FakeZooKeeper, Fate
from asyncconsumer.testing.virtual_time import run, simulated
from asyncconsumer.zookeeper import requests
from asyncconsumer.zookeeper.session import ZooKeeperSession

pytestmark = pytest.mark.fast


def fake_session(
    fake: FakeZooKeeper | FakeClient, seed: int = 0, **options: Any
) -> ZooKeeperSession:
    config = ZooKeeperConfig(zookeeper_connect=fake.connect, **options)
    return ZooKeeperSession(config, randomness=Random(seed), opener=fake.open)


def test_a_schedule_can_be_replayed() -> None:
    async def scenario() -> list[str]:
        fake = FakeZooKeeper(3, randomness=Random(5))
        trace: list[str] = []

        def note(session_id: int, request: Request) -> Fate:
            trace.append(f"{asyncio.get_running_loop().time()} {session_id} {request}")
            return Fate.LOST_AFTER if len(trace) % 7 == 0 else Fate.DONE

        fake.on_write = note

        async def work(me: int) -> None:
            async with fake_session(fake, me) as zk:
                for number in range(20):
                    with suppress(ZooKeeperError):
                        await zk.create(f"/{me}-{number}", ephemeral=True)

        async with asyncio.TaskGroup() as group:
            for me in range(4):
                group.create_task(work(me))
        return trace

    assert len(run(scenario, seed=3)) == 80
    assert run(scenario, seed=3) == run(scenario, seed=3) != run(scenario, seed=4)


@simulated(range(10), limit=100)
async def test_a_session_without_requests_expires_on_the_server() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1))
    async with fake_session(fake) as zk:
        await zk.create("/n", ephemeral=True)
        assert fake.tree.owned_by(zk.session_id) == ["/n"]
        fake.freeze()
        await asyncio.sleep(5)
        assert fake.sessions == [1]
        await asyncio.sleep(2)
        assert (fake.sessions, "/n" in fake.tree.nodes) == ([], False)
        fake.thaw()


@simulated(range(10), limit=100)
async def test_the_session_of_an_isolated_client_expires() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1))
    client = fake.client()
    async with fake_session(client) as zk, fake_session(fake, 1) as other:
        await zk.create("/n", ephemeral=True)
        client.isolate()
        with other.watch_exists("/n") as watch:
            while await watch.read() is not None:
                await watch.changed.wait()
        assert not zk.is_over(1)  # the client cannot know about the expiry
        assert not zk.holds(1)  # the claim has ended by its own clock
        client.rejoin()
        await zk.wait_expired(1)
        await zk.connected.wait()
        assert (zk.epoch, other.epoch) == (2, 1)


@simulated(range(10), limit=100)
async def test_manual_changes_are_visible_to_sessions() -> None:
    fake = FakeZooKeeper(randomness=Random(1))
    async with fake_session(fake) as zk:
        with zk.watch_data("/n") as watch:
            await watch.read()
            fake.apply(requests.create("/n", b"x", acl=requests.WORLD).request)
            await watch.changed.wait()
        assert zk.requests == fake.operations == 2


@simulated(range(10), limit=100)
async def test_a_lagging_server_catches_up_after_a_sync() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1), lag=20)
    zk0, zk1 = (str(address) for address in fake.servers)
    session = ZooKeeperSession(
        ZooKeeperConfig(zookeeper_connect=zk0), randomness=Random(0), opener=fake.open
    )
    two = ZooKeeperSession(
        ZooKeeperConfig(zookeeper_connect=zk1), randomness=Random(0), opener=fake.open
    )
    async with session, two:
        await session.create("/n")
        assert await session.exists("/n") is not None
        with two.watch_exists("/n") as watch:
            is_lagging = await watch.read() is None
            if is_lagging:
                await watch.changed.wait()  # the watch is set after the lag
            assert await watch.read() is not None
        await session.set("/n", b"x")
        await two.sync("/n")
        assert (await two.get("/n")).data == b"x"


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="an ensemble cannot have"):
        FakeZooKeeper(0, randomness=Random(0))
    with pytest.raises(ConfigError, match="an ensemble cannot have"):
        FakeZooKeeper(randomness=Random(0), latency=(2, 1))
    with pytest.raises(ConfigError, match="an ensemble cannot have"):
        FakeZooKeeper(randomness=Random(0), lag=-1)
