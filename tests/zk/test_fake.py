"""The fake ZooKeeper does what a real one does."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from aiozk.protocol.request import Request

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import ConfigError, TransactionFailed, ZooKeeperError
from asyncconsumer.testing.fake_zookeeper import FakeClient, FakeZooKeeper, Fate
from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.testing.virtual_time import run, simulated
from asyncconsumer.zookeeper import requests
from asyncconsumer.zookeeper.requests import Check, Create, Delete, SetData, Stat, ZnodeData
from asyncconsumer.zookeeper.session import ZooKeeperSession
from asyncconsumer.zookeeper.watch import Watch
from tests.zk.sessions import session


def fake_session(
    fake: FakeZooKeeper | FakeClient, seed: int = 0, **options: Any
) -> ZooKeeperSession:
    config = ZooKeeperConfig(zookeeper_connect=fake.connect, **options)
    return ZooKeeperSession(config, randomness=Random(seed), opener=fake.open)


class Recorder:
    """Plays a scenario, and writes down what can be compared between two servers."""

    def __init__(self, root: str) -> None:
        self.lines: list[str] = []
        self._root = root

    async def note(self, call: Awaitable[Any]) -> None:
        try:
            self.lines.append(self._comparable(await call))
        except TransactionFailed as error:
            self.lines.append(f"{type(error).__name__} {error.index} {error.__cause__!r}")
        except ZooKeeperError as error:
            self.lines.append(f"{type(error).__name__} {error.code}")

    def watched(self, *watches: Watch[Any]) -> None:
        self.lines.append(str([watch.changed.is_set() for watch in watches]))

    def _comparable(self, value: object) -> str:
        if isinstance(value, ZnodeData):
            return f"{value.data!r} {self._comparable(value.stat)}"
        if isinstance(value, Stat):
            owned = bool(value.ephemeral_owner)
            return f"v{value.version} {owned} {value.data_length} {value.children_count}"
        if isinstance(value, list):
            return str([self._comparable(each) for each in value])
        return repr(value).replace(self._root, "")


async def play(mine: ZooKeeperSession, other: ZooKeeperSession, root: str) -> list[str]:
    """Every request, and every kind of watch."""
    log = Recorder(root)
    a, b = f"{root}/a", f"{root}/a/b"
    await mine.create(root)
    await log.note(mine.create(a, b"1"))
    await log.note(mine.create(a, b"1"))
    await log.note(mine.create(f"{root}/x/y"))
    await log.note(mine.get(a))
    await log.note(mine.exists(a))
    await log.note(mine.exists(b))
    await log.note(mine.get(b))
    await log.note(mine.children(b))
    await log.note(mine.set(a, b"22", version=0))
    await log.note(mine.set(a, b"22", version=0))
    await log.note(mine.set(b, b"22"))
    await log.note(mine.create(b, None, ephemeral=True))
    await log.note(mine.create(f"{b}/c"))
    await log.note(mine.get(b))
    await log.note(mine.delete(a))
    await log.note(mine.delete(b, version=3))
    await log.note(mine.children(a))
    await log.note(mine.create(f"{a}/s-", b"", sequential=True))
    await log.note(mine.create(f"{a}/s-", b"", sequential=True))
    await log.note(mine.multi([Check(a, 1), SetData(a, b"3"), Create(f"{a}/m"), Delete(b)]))
    await log.note(mine.multi([SetData(a, b"4"), Delete(f"{a}/m"), Check(a, 9), Create(b)]))
    await log.note(mine.multi([Delete(f"{a}/m"), Create(b), Create(a), Delete(b)]))
    await log.note(mine.get(a))
    await log.note(mine.children(a))
    await log.note(mine.sync(a))

    data, children, exists = mine.watch_data(a), mine.watch_children(a), mine.watch_exists(a)
    new, below = mine.watch_data(f"{root}/new"), mine.watch_children(f"{root}/new")
    watches: list[Watch[Any]] = [data, children, exists, new, below]

    async def after(change: Awaitable[Any]) -> None:
        for watch in watches:
            await log.note(watch.read())
        log.watched(*watches)
        await change
        await mine.sync(a)  # what happened before it is told before it is answered
        log.watched(*watches)

    await after(other.set(a, b"5"))
    await after(other.create(f"{a}/child"))
    await after(other.set(f"{a}/child", b""))
    await after(other.delete(f"{a}/child"))
    await after(other.create(f"{root}/new"))
    await after(other.create(f"{root}/new/child"))
    await after(other.multi([Delete(f"{root}/new/child"), Delete(f"{root}/new")]))
    await after(other.sync(a))
    for name in await mine.children(a):
        await mine.delete(f"{a}/{name}")
    await after(other.delete(a))
    for watch in watches:
        watch.close()
    return log.lines


async def test_the_fake_does_what_a_real_server_does(zookeeper: ZooKeeperHandle) -> None:
    async with session(zookeeper.connect) as mine, session(zookeeper.connect) as other:
        root = zookeeper.path()
        real = await play(mine, other, root)

    async def faked() -> list[str]:
        fake = FakeZooKeeper(randomness=Random(1))
        async with fake_session(fake) as mine, fake_session(fake) as other:
            return await play(mine, other, root)

    assert await asyncio.to_thread(run, faked) == real
    assert len(real) > 80


@pytest.mark.fast
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


@pytest.mark.fast
@simulated(range(10), limit=100)
async def test_a_session_that_is_not_heard_of_ends_on_the_server() -> None:
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


@pytest.mark.fast
@simulated(range(10), limit=100)
async def test_an_isolated_client_is_missed_while_the_others_go_on() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1))
    client = fake.client()
    async with fake_session(client) as zk, fake_session(fake, 1) as other:
        await zk.create("/n", ephemeral=True)
        client.isolate()
        with other.watch_exists("/n") as watch:
            while await watch.read() is not None:
                await watch.changed.wait()
        assert not zk.is_over(1)  # it cannot know
        assert not zk.holds(1)  # and does not need to
        client.rejoin()
        await zk.wait_expired(1)
        await zk.connected.wait()
        assert (zk.epoch, other.epoch) == (2, 1)


@pytest.mark.fast
@simulated(range(10), limit=100)
async def test_changes_by_hand_are_seen() -> None:
    fake = FakeZooKeeper(randomness=Random(1))
    async with fake_session(fake) as zk:
        with zk.watch_data("/n") as watch:
            await watch.read()
            fake.apply(requests.create("/n", b"x", acl=requests.WORLD).request)
            await watch.changed.wait()
        assert zk.requests == fake.operations == 2


@pytest.mark.fast
@simulated(range(10), limit=100)
async def test_a_server_may_be_behind_until_it_is_asked_to_catch_up() -> None:
    fake = FakeZooKeeper(2, randomness=Random(1), lag=20)
    zk0, zk1 = (str(address) for address in fake.servers)
    one = ZooKeeperSession(
        ZooKeeperConfig(zookeeper_connect=zk0), randomness=Random(0), opener=fake.open
    )
    two = ZooKeeperSession(
        ZooKeeperConfig(zookeeper_connect=zk1), randomness=Random(0), opener=fake.open
    )
    async with one, two:
        await one.create("/n")
        assert await one.exists("/n") is not None
        with two.watch_exists("/n") as watch:
            behind = await watch.read() is None
            if behind:
                await watch.changed.wait()  # it sees it after a while, and says so
            assert await watch.read() is not None
        await one.set("/n", b"x")
        await two.sync("/n")
        assert (await two.get("/n")).data == b"x"


@pytest.mark.fast
def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigError, match="no ensemble"):
        FakeZooKeeper(0, randomness=Random(0))
    with pytest.raises(ConfigError, match="no ensemble"):
        FakeZooKeeper(randomness=Random(0), latency=(2, 1))
    with pytest.raises(ConfigError, match="no ensemble"):
        FakeZooKeeper(randomness=Random(0), lag=-1)
