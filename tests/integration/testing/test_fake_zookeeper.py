"""Equality of the fake ZooKeeper and a real one."""

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any

from asyncconsumer.errors import TransactionFailed, ZooKeeperError
from asyncconsumer.testing.fake_zookeeper import FakeZooKeeper
from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.testing.virtual_time import run
from asyncconsumer.zookeeper.requests import Check, Create, Delete, SetData, Stat, ZnodeData
from asyncconsumer.zookeeper.session import ZooKeeperSession
from asyncconsumer.zookeeper.watch import Watch
from tests.support.zookeeper_sessions import session
from tests.testing.fake_zookeeper.test_ensemble import fake_session


class Recorder:
    """A log of results in a form that can be compared between two servers."""

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
    """Send every request and use every kind of watch. Return the log."""
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
        await mine.sync(a)  # earlier events arrive before its response
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


async def test_the_fake_server_answers_as_the_real_one(zookeeper: ZooKeeperHandle) -> None:
    async with session(zookeeper.connect) as mine, session(zookeeper.connect) as other:
        root = zookeeper.path()
        real = await play(mine, other, root)

    async def faked() -> list[str]:
        fake = FakeZooKeeper(randomness=Random(1))
        async with fake_session(fake) as mine, fake_session(fake) as other:
            return await play(mine, other, root)

    assert await asyncio.to_thread(run, faked) == real
    assert len(real) > 80
