"""Requests of a session to a real server."""

import asyncio
from typing import Any

import pytest

from asyncconsumer.errors import (
    BadArguments,
    BadVersion,
    ClosedError,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    TransactionFailed,
    ZooKeeperError,
)
from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.zookeeper.requests import Check, Create, Delete, SetData
from tests.support.zookeeper_sessions import session


async def test_nodes_are_created_read_changed_and_deleted(zookeeper: ZooKeeperHandle) -> None:
    path = zookeeper.path()
    async with session(zookeeper.connect) as zk:
        assert await zk.exists(path) is None
        assert await zk.create(path, b"one") == path
        node = await zk.get(path)
        assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"one", 0, 0)
        assert (await zk.set(path, b"two", version=0)).version == 1
        await zk.create(f"{path}/kind", None)
        assert (await zk.get(f"{path}/kind")).data is None
        await zk.create(f"{path}/empty", b"")
        assert (await zk.get(f"{path}/empty")).data == b""
        assert sorted(await zk.children(path)) == ["empty", "kind"]
        await zk.sync(path)
        for child in ("kind", "empty"):
            await zk.delete(f"{path}/{child}")
        await zk.delete(path, version=1)
        assert await zk.exists(path) is None
        assert zk.requests == 14


async def test_errors_of_requests_are_typed_and_name_the_node(zookeeper: ZooKeeperHandle) -> None:
    path = zookeeper.path()
    async with session(zookeeper.connect) as zk:
        await zk.create(path)
        await zk.create(f"{path}/mine", ephemeral=True)
        refused: list[tuple[type[ZooKeeperError], Any]] = [
            (NodeExists, zk.create(path)),
            (NotEmpty, zk.delete(path)),
            (BadVersion, zk.set(path, b"", version=7)),
            (NoNode, zk.get(f"{path}/none")),
            (NoNode, zk.children(f"{path}/none")),
            (NoNode, zk.create(f"{path}/none/below")),
            (NoChildrenForEphemerals, zk.create(f"{path}/mine/below")),
            (BadArguments, zk.get("consumers")),
            (BadArguments, zk.create(f"{path}/")),
            (BadArguments, zk.create(f"{path}/../x")),
            (BadArguments, zk.create(f"{path}/.")),
            (BadArguments, zk.create(f"{path}//x")),
            (BadArguments, zk.create(f"{path}/\0")),
            (BadArguments, zk.create(f"{path}/\ud800")),
            (BadArguments, zk.multi([Create(f"{path}/..")])),
        ]
        for kind, call in refused:
            with pytest.raises(kind) as caught:
                await call
            assert caught.value.path in str(caught.value) or not caught.value.path.isprintable()
            assert "ZooKeeper error" in str(caught.value)


async def test_ephemeral_nodes_are_deleted_when_the_session_closes(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    async with session(zookeeper.connect) as other:
        async with session(zookeeper.connect) as zk:
            await zk.create(path, b"ephemeral", ephemeral=True)
            stat = await other.exists(path)
            assert stat is not None
            assert stat.ephemeral_owner == zk.session_id
        assert zk.session_id == 0
        assert await other.exists(path) is None  # at once, not after a timeout


async def test_a_transaction_is_applied_completely_or_not_at_all(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    async with session(zookeeper.connect) as zk:
        await zk.create(path, b"a")
        await zk.create(f"{path}/old")
        results = await zk.multi(
            [
                Check(path, 0),
                Create(f"{path}/né", b"x", ephemeral=True),
                SetData(path, b"b", 0),
                Delete(f"{path}/old"),
            ]
        )
        assert results[0] is None
        assert results[1] == f"{path}/né"
        assert results[2].version == 1
        assert results[3] is None
        assert await zk.children(path) == ["né"]

        with pytest.raises(TransactionFailed) as caught:
            await zk.multi([SetData(path, b"c"), Check(path, 1), Delete(path)])
        assert (caught.value.index, caught.value.path) == (1, path)
        assert isinstance(caught.value.__cause__, BadVersion)
        assert (await zk.get(path)).data == b"b"


async def test_many_nodes_are_read_concurrently(zookeeper: ZooKeeperHandle) -> None:
    path = zookeeper.path()
    async with session(zookeeper.connect) as zk:
        await zk.create(path)
        names = [f"{path}/{number}" for number in range(1100)]
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(zk.create(name, name.encode(), ephemeral=True))
        before = zk.requests
        results = await zk.get_many([*names, f"{path}/none"])
        assert zk.requests - before == 1101
        assert [node.data for node in results[:-1] if node] == [name.encode() for name in names]
        assert results[-1] is None
        assert len(await zk.children(path)) == 1100
        assert await zk.children_of_many([names[0], path + "none"]) == [[], None]
        assert await zk.get_many([]) == []


async def test_a_chroot_is_prepended_to_every_path(zookeeper: ZooKeeperHandle) -> None:
    root = zookeeper.path()
    async with (
        session(zookeeper.connect) as environment,
        session(f"{zookeeper.connect}{root}/deep/") as inside,
    ):
        with pytest.raises(NoNode, match=f"{root}/deep/a: .* check the chroot"):
            await inside.create("/a")
        await environment.create(root)
        await environment.create(f"{root}/deep")
        assert await inside.create("/a", b"1") == "/a"
        assert (await environment.get(f"{root}/deep/a")).data == b"1"
        assert await inside.children("/") == ["a"]
        with inside.watch_data("/a") as data, inside.watch_children("/") as children:
            await data.read()
            await children.read()
            await environment.set(f"{root}/deep/a", b"2")
            await data.changed.wait()
            await environment.create(f"{root}/deep/b")
            await children.changed.wait()
        await inside.multi([Create("/c"), Delete("/b")])
        assert sorted(await environment.children(f"{root}/deep")) == ["a", "c"]


async def test_nodes_of_one_user_are_not_accessible_to_others(zookeeper: ZooKeeperHandle) -> None:
    path = zookeeper.path()
    async with (
        session(zookeeper.connect, auth="alice:s3cret", zookeeper_set_acl=True) as alice,
        session(zookeeper.connect, auth="bob:s3cret") as bob,
    ):
        await alice.create(path, b"mine")
        await alice.multi([Create(f"{path}/too")])
        for attempt in (bob.get(path), bob.delete(f"{path}/too"), bob.create(f"{path}/x")):
            with pytest.raises(NoAuth, match=path):
                await attempt
        assert (await alice.get(path)).data == b"mine"


async def test_requests_outside_of_the_session_block_raise_closed_error(
    zookeeper: ZooKeeperHandle,
) -> None:
    zk = session(zookeeper.connect)
    with pytest.raises(ClosedError, match="not open yet"):
        await zk.get("/")
    async with zk:
        epoch = zk.epoch
        assert zk.holds(epoch)
    for attempt in (zk.get("/"), zk.create("/x"), zk.get_many(["/"])):
        with pytest.raises(ClosedError, match="block is over"):
            await attempt
    assert not zk.holds(epoch)


async def test_cancelled_calls_do_not_affect_other_calls_of_the_session(
    zookeeper: ZooKeeperHandle,
) -> None:
    async with session(zookeeper.connect) as zk:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(zk.get("/")) for _ in range(50)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
        assert [task.cancelled() for task in tasks] == [True, False] * 25
        assert await zk.get("/")
        assert zk.epoch == 1
