"""Writes that can be settled when their answer is lost: by reading, never by writing again."""

import asyncio

from asyncconsumer.errors import ConnectionLoss, NoAuth, NodeExists, NoNode, SessionExpired
from asyncconsumer.zookeeper.requests import ANY_VERSION, ZnodeData
from asyncconsumer.zookeeper.session import ZooKeeperSession


async def create_ephemeral_owned(
    session: ZooKeeperSession, path: str, data: bytes | None, *, epoch: int
) -> None:
    """Create an ephemeral node in the session of an epoch, or find it there as ours.

    One that an earlier session of ours left is on its way out: that is waited for. NodeExists
    means that another's is there, ConnectionLoss that ours is not: try again if you still want it.
    """
    while True:
        try:
            await session.create(path, data, ephemeral=True, epoch=epoch)
        except (NodeExists, ConnectionLoss) as error:
            there = await _settled(session, path)
            if session.is_over(epoch):
                raise SessionExpired(path, f"the session of epoch {epoch} is over") from error
            if there is None:
                if isinstance(error, NodeExists):
                    continue  # it went meanwhile
                raise
            owner = there.stat.ephemeral_owner
            if owner == session.session_id and there.data == data:
                return
            if owner not in session.former_ids or not await _goes(session, path):
                raise NodeExists(path, _whose(session, owner)) from error
        else:
            return


async def delete_if_there(
    session: ZooKeeperSession, path: str, *, version: int = ANY_VERSION, epoch: int | None = None
) -> None:
    """Delete a node, or find that it is gone. ConnectionLoss means that it is still there."""
    try:
        await session.delete(path, version=version, epoch=epoch)
    except NoNode:
        return
    except ConnectionLoss:
        if await _settled(session, path) is not None:
            raise


async def delete_ephemeral_owned(
    session: ZooKeeperSession, path: str, *, epoch: int, sure: bool = True
) -> None:
    """Delete a node that we created in the session of an epoch; until it is gone.

    A delete whose answer was lost may have been done, and another may have a node there by now:
    so it is not sent again before the node was seen to be still ours. Nor is it sent at all before
    that if we are not `sure` to have created it.
    """
    while True:
        try:
            if not sure:
                there = await _settled(session, path)
                if there is None or there.stat.ephemeral_owner != session.session_id:
                    return
            sure = False
            await session.delete(path, epoch=epoch)
        except NoNode:
            return
        except ConnectionLoss:
            continue  # the next call waits for a connection
        else:
            return


async def ensure_path(session: ZooKeeperSession, path: str, data: bytes | None = None) -> None:
    """Create a persistent node, and the parents that it needs, unless they are there."""
    try:
        await session.create(path, data)
    except NodeExists:
        return
    except NoNode:
        parent = path.rpartition("/")[0]
        if not parent:
            raise  # the chroot itself is missing, and may be a slip: it is not made up
        await ensure_path(session, parent, data)
        await ensure_path(session, path, data)
    except (NoAuth, ConnectionLoss):  # NoAuth: of the parent, though the node may be there
        await session.sync(path)
        if await session.exists(path) is None:
            raise


async def _settled(session: ZooKeeperSession, path: str) -> ZnodeData | None:
    """What is there after a write whose answer was lost.

    The server that we are with now may lag behind the one that took the write: hence the sync. A
    write that is still on its way from there is refused, since our session has moved.
    """
    await session.sync(path)
    try:
        return await session.get(path)
    except NoNode:
        return None


async def _goes(session: ZooKeeperSession, path: str) -> bool:
    """Wait until a node is gone, for as long as a session may take to end."""
    try:
        async with asyncio.timeout(2 * session.timeout):
            with session.watch_exists(path) as watch:
                while await watch.read() is not None:
                    await watch.changed.wait()
    except TimeoutError:
        return False
    return True


def _whose(session: ZooKeeperSession, owner: int) -> str:
    if owner == 0:
        return "a persistent node is there"
    if owner == session.session_id:
        return "it is there as ours, with other data"
    return f"it is there, and belongs to session 0x{owner:x}"
