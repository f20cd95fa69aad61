"""Writes whose response is lost. A read finds out whether they were applied."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiozk.protocol import WORLD_READABLE

from asyncconsumer.errors import ConnectionLoss, NoAuth, NodeExists, NoNode, SessionExpired
from asyncconsumer.testing.handles import ZooKeeperHandle
from asyncconsumer.testing.proxy import Frame, TcpProxy, Verdict, zookeeper_opcode
from asyncconsumer.zookeeper.recipes import create_ephemeral_owned, delete_if_exists, ensure_path
from asyncconsumer.zookeeper.requests import CREATOR_ALL
from tests.support.zookeeper_sessions import proxied, session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CREATE, DELETE = 1, 2


def lose(proxy: TcpProxy, opcode: int, *, applied: bool) -> list[int]:
    """Cut the connection before or after the next such request is applied, and count them all."""
    sent: list[int] = []

    def up(frame: Frame) -> Verdict:
        if zookeeper_opcode(frame) != opcode:
            return Verdict.PASS
        sent.append(frame.index)
        if len(sent) > 1:
            return Verdict.PASS
        if not applied:
            return Verdict.CUT
        proxy.on_frame("down", down)
        return Verdict.PASS

    def down(_: Frame) -> Verdict:
        proxy.on_frame("down", lambda _: Verdict.PASS)
        return Verdict.CUT

    proxy.on_frame("up", up)
    return sent


async def test_an_ephemeral_node_is_owned_though_its_response_was_lost(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper) as (proxy, zk):
        sent = lose(proxy, CREATE, applied=True)
        await create_ephemeral_owned(zk, path, b"me", epoch=zk.epoch)
        assert (await zk.get(path)).stat.ephemeral_owner == zk.session_id
        assert len(sent) == 1
        await create_ephemeral_owned(zk, path, b"me", epoch=zk.epoch)  # and a second time
        with pytest.raises(NodeExists, match="owns it, with other data"):
            await create_ephemeral_owned(zk, path, b"other", epoch=zk.epoch)


@pytest.mark.parametrize("recipe", ["create", "ensure", "delete"])
async def test_a_write_that_was_not_applied_raises_and_is_not_repeated(
    zookeeper: ZooKeeperHandle, recipe: str
) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper) as (proxy, zk):
        recipes: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "create": (CREATE, lambda: create_ephemeral_owned(zk, path, b"", epoch=1)),
            "ensure": (CREATE, lambda: ensure_path(zk, path)),
            "delete": (DELETE, lambda: delete_if_exists(zk, path)),
        }
        opcode, write = recipes[recipe]
        if recipe == "delete":
            await zk.create(path)
        sent = lose(proxy, opcode, applied=False)
        with pytest.raises(ConnectionLoss):
            await write()
        assert len(sent) == 1
        assert (await zk.exists(path) is not None) == (recipe == "delete")
        await write()
        assert (await zk.exists(path) is None) == (recipe == "delete")


@pytest.mark.parametrize("recipe", ["ensure", "delete"])
async def test_an_applied_write_succeeds_though_its_response_was_lost(
    zookeeper: ZooKeeperHandle, recipe: str
) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper) as (proxy, zk):
        if recipe == "ensure":
            sent = lose(proxy, CREATE, applied=True)
            await ensure_path(zk, path)
        else:
            await zk.create(path)
            sent = lose(proxy, DELETE, applied=True)
            await delete_if_exists(zk, path)
        assert len(sent) == 1
        assert (await zk.exists(path) is None) == (recipe == "delete")


async def test_a_node_of_another_owner_is_refused(zookeeper: ZooKeeperHandle) -> None:
    path = zookeeper.path()
    async with session(zookeeper.connect) as other, session(zookeeper.connect) as zk:
        await other.create(path, b"me", ephemeral=True)
        with pytest.raises(NodeExists, match=f"belongs to session 0x{other.session_id:x}"):
            await create_ephemeral_owned(zk, path, b"me", epoch=zk.epoch)
        await other.create(f"{path}-2", b"me")
        with pytest.raises(NodeExists, match="a persistent node"):
            await create_ephemeral_owned(zk, f"{path}-2", b"me", epoch=zk.epoch)


async def test_a_claim_waits_until_the_node_of_a_former_session_is_gone(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    async with (
        session(zookeeper.connect) as earlier,
        session(zookeeper.connect) as zk,
        asyncio.TaskGroup() as group,
    ):
        await earlier.create(path, b"me", ephemeral=True)
        zk.former_ids = frozenset({earlier.session_id})  # as if this session owned it

        async def claim() -> None:
            await create_ephemeral_owned(zk, path, b"me", epoch=zk.epoch)

        task = group.create_task(claim())
        while zk.requests < 4:  # create, sync, get, exists
            await asyncio.sleep(0)
        assert not task.done()
        await earlier.delete(path)
        await task
        assert (await zk.get(path)).stat.ephemeral_owner == zk.session_id


async def test_a_claim_fails_if_its_session_expires(zookeeper: ZooKeeperHandle) -> None:
    path = zookeeper.path()
    async with proxied(zookeeper) as (proxy, zk):
        refused: list[int] = []

        def cut_and_expire(frame: Frame) -> Verdict:
            if zookeeper_opcode(frame) == CREATE:
                proxy.refuse()
                return Verdict.CUT
            return Verdict.PASS

        proxy.on_frame("up", cut_and_expire)
        async with asyncio.TaskGroup() as group:

            async def claim() -> None:
                with pytest.raises(SessionExpired):
                    await create_ephemeral_owned(zk, path, b"", epoch=1)
                refused.append(1)

            group.create_task(claim())
            await proxy.wait_until(lambda now: now.refused > 0)
            await zookeeper.server.expire_session(zk.session_id, zk.password)
            proxy.heal()
        assert refused
        assert await zk.exists(path) is None


async def test_ensure_path_creates_parents_but_not_the_chroot(zookeeper: ZooKeeperHandle) -> None:
    path = zookeeper.path()
    async with session(zookeeper.connect) as zk:
        await ensure_path(zk, f"{path}/a/b/c", b"")
        await ensure_path(zk, f"{path}/a/b/c", b"")
        assert (await zk.get(f"{path}/a/b")).data == b""
        await delete_if_exists(zk, f"{path}/a/b/none")
    async with session(f"{zookeeper.connect}{path}/none") as zk:
        with pytest.raises(NoNode, match="chroot"):
            await ensure_path(zk, "/a/b")


async def test_ensure_path_needs_no_create_permission_for_an_existing_path(
    zookeeper: ZooKeeperHandle,
) -> None:
    path = zookeeper.path()
    readable = (*CREATOR_ALL, WORLD_READABLE)
    async with session(zookeeper.connect, auth="alice:x") as alice:
        await alice.create(path, acl=readable)
        await alice.create(f"{path}/a", acl=readable)
    async with session(zookeeper.connect) as zk:
        await ensure_path(zk, f"{path}/a")
        with pytest.raises(NoAuth):
            await ensure_path(zk, f"{path}/b")
