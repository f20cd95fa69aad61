"""The roster registration_of a group, which reads only changes."""

import asyncio
from random import Random

import pytest

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.group.zookeeper import registration
from asyncconsumer.group.zookeeper.filters import StreamSubscription
from asyncconsumer.group.zookeeper.roster import Roster
from asyncconsumer.testing.fake_zookeeper import FakeZooKeeper
from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.testing.virtual_time import run
from asyncconsumer.zookeeper.paths import GroupPaths
from asyncconsumer.zookeeper.recipes import ensure_path
from asyncconsumer.zookeeper.requests import Stat
from asyncconsumer.zookeeper.session import ZooKeeperSession
from tests.support.helpers import until


def session_on(connect: str) -> ZooKeeperSession:
    return ZooKeeperSession(ZooKeeperConfig(zookeeper_connect=connect), randomness=Random(1))


def registration_of(topic: str) -> bytes:
    return registration.write(StreamSubscription({topic: 1}), 0)


class Group:
    """Registrations, as members write them."""

    def __init__(self, session: ZooKeeperSession, name: str) -> None:
        self.existing: dict[str, str] = {}
        self._session = session
        self._ids = GroupPaths(name).ids

    async def begin(self) -> None:
        await ensure_path(self._session, self._ids)

    async def end(self) -> None:
        for name in list(self.existing):
            await self.leave(name)
        await self._session.delete(self._ids)

    async def join(self, name: str, topic: str) -> None:
        await self._session.create(f"{self._ids}/{name}", registration_of(topic))
        self.existing[name] = topic

    async def leave(self, name: str) -> None:
        await self._session.delete(f"{self._ids}/{name}")
        del self.existing[name]


def found(members: dict[str, StreamSubscription]) -> dict[str, str]:
    return {name: next(iter(subscription.streams)) for name, subscription in members.items()}


async def test_a_roster_reads_only_new_registrations(
    zookeeper: ZooKeeperHandle, caplog: pytest.LogCaptureFixture
) -> None:
    name, wakeup = zookeeper.group(), asyncio.Event()
    async with session_on(zookeeper.connect) as session, session_on(zookeeper.connect) as writer:
        group, roster = Group(writer, name), Roster(session, name, wakeup)
        assert await roster.read() == {}

        async def reads() -> int:
            """Read the roster after a change, and return the number registration_of requests."""
            await session.sync()
            before = session.requests
            assert found(await roster.read()) == group.existing
            return session.requests - before

        await group.begin()
        for number in range(20):
            await group.join(f"m{number:02}", "a")
        assert await reads() == 22
        assert await reads() == 2
        await group.join("m20", "a")
        await group.leave("m03")
        assert await reads() == 3
        await group.leave("m05")
        await group.join("m05", "b")  # the same names as before
        assert await reads() == 22
        await group.end()
        await group.begin()
        await group.join("m05", "c")
        assert await reads() == 3
        await writer.create(f"{GroupPaths(name).ids}/bad", b"{")
        wakeup.clear()
        for _ in range(3):
            assert await reads() <= 3
        assert caplog.text.count("a member of group") == 1
        await group.leave("m05")
        await until(wakeup.is_set)


async def join_during_a_read(patch: pytest.MonkeyPatch) -> None:
    zookeeper = FakeZooKeeper(randomness=Random(1))
    config = ZooKeeperConfig(zookeeper_connect=zookeeper.connect)
    async with (
        ZooKeeperSession(config, randomness=Random(1), opener=zookeeper.open) as writer,
        ZooKeeperSession(config, randomness=Random(2), opener=zookeeper.open) as session,
    ):
        group = Group(writer, "g")
        roster = Roster(session, "g", asyncio.Event())
        await group.begin()
        await group.join("m", "a")
        exists = session.exists

        async def late(path: str, *, watch: bool = False) -> Stat | None:
            await group.join("x", "a")
            await group.join("y", "a")
            return await exists(path, watch=watch)

        with patch.context() as now:
            now.setattr(session, "exists", late)
            await roster.read()  # members joined between the names and their count
        await group.leave("m")
        await group.join("m", "b")  # the count alone does not show the change
        assert found(await roster.read()) == group.existing


def test_members_that_join_during_a_read_do_not_hide_a_later_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(join_during_a_read(monkeypatch))


async def churn(seed: int) -> None:
    chance = Random(seed)
    zookeeper = FakeZooKeeper(3, randomness=Random(seed), lag=0.01)
    config = ZooKeeperConfig(zookeeper_connect=zookeeper.connect)
    async with (
        ZooKeeperSession(config, randomness=Random(seed), opener=zookeeper.open) as writer,
        ZooKeeperSession(config, randomness=Random(seed + 1), opener=zookeeper.open) as session,
    ):
        group, wakeup = Group(writer, "g"), asyncio.Event()
        roster = Roster(session, "g", wakeup)
        await group.begin()

        async def change_members() -> None:
            for _ in range(40):
                name = f"m{chance.randrange(4)}"
                if name in group.existing:
                    await group.leave(name)
                else:
                    await group.join(name, chance.choice("abc"))
                if chance.random() < 0.3:
                    await asyncio.sleep(chance.uniform(0, 0.02))

        last: dict[str, str] = {}

        async def follow() -> None:
            while True:
                wakeup.clear()
                last.clear()
                last.update(found(await roster.read()))
                await wakeup.wait()

        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow())
            await change_members()
            await asyncio.sleep(1)
            assert last == group.existing
            following.cancel()


def test_a_roster_misses_no_change_of_members() -> None:
    for seed in range(150):
        try:
            run(churn(seed), seed=seed, limit=1000)
        except BaseException as error:
            error.add_note(f"This was seed {seed}.")
            raise
