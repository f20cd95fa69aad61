"""Writes that can be repeated safely if their response is lost.

After a lost response, the znode is read to find out whether the write was applied.
"""

import asyncio

from asyncconsumer.errors import ConnectionLoss, NoAuth, NodeExists, NoNode
from asyncconsumer.zookeeper.requests import ANY_VERSION, ZnodeData
from asyncconsumer.zookeeper.session import ZooKeeperSession


async def create_ephemeral_owned(
    session: ZooKeeperSession, path: str, data: bytes | None, *, epoch: int
) -> None:
    """Create an ephemeral znode in the session number `epoch`, unless that session owns it already.

    If an earlier session of this client left the znode, wait until it is gone. Raise `NodeExists`
    if another client owns the znode. Raise `ConnectionLoss` if it was not created, so that the
    caller may try again.
    """
    while True:
        try:
            await session.create(path, data, ephemeral=True, epoch=epoch)
        except (NodeExists, ConnectionLoss) as error:
            node = await _read_after_sync(session, path)
            session.check_epoch(epoch, path)
            if node is None:
                if isinstance(error, NodeExists):
                    continue  # the znode was deleted meanwhile
                raise
            owner = node.stat.ephemeral_owner
            if owner == session.session_id and node.data == data:
                return
            if owner not in session.former_ids or not await _wait_deleted(session, path):
                raise NodeExists(path, _describe_owner(session, owner)) from error
        else:
            return


async def delete_if_exists(
    session: ZooKeeperSession, path: str, *, version: int = ANY_VERSION, epoch: int | None = None
) -> None:
    """Delete a znode if it exists.

    If the response is lost, read the znode, and raise `ConnectionLoss` if it still exists. If
    `epoch` is set, raise `SessionExpired` unless the session with that number is the current one.
    """
    try:
        await session.delete(path, version=version, epoch=epoch)
    except NoNode:
        return
    except ConnectionLoss:
        if await _read_after_sync(session, path) is not None:
            raise


async def delete_ephemeral_owned(
    session: ZooKeeperSession, path: str, *, epoch: int, sure: bool = True
) -> None:
    """Delete a znode that this client created in the session number `epoch`.

    Retry until the znode is gone. If the response to a delete is lost, the delete may have been
    applied, and another client may own the znode by now. So the delete is repeated only after a
    read shows that this session still owns the znode. With `sure=False`, the znode may not have
    been created, so the read comes first.
    """
    while True:
        try:
            if not sure:
                node = await _read_after_sync(session, path)
                if node is None or node.stat.ephemeral_owner != session.session_id:
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
    """Create a persistent znode and its parents, unless they exist."""
    try:
        await session.create(path, data)
    except NodeExists:
        return
    except NoNode:
        parent = path.rpartition("/")[0]
        if not parent:
            raise  # the chroot is missing; it is never created
        await ensure_path(session, parent, data)
        await ensure_path(session, path, data)
    except (NoAuth, ConnectionLoss):  # NoAuth is about the parent, so the znode may exist
        await session.sync(path)
        if await session.exists(path) is None:
            raise


async def _read_after_sync(session: ZooKeeperSession, path: str) -> ZnodeData | None:
    """Return the znode after a write whose response was lost, or None if it does not exist.

    A `sync` call comes first, because the current server may lag behind the server that received
    the write. If the write has not reached that server yet, it is refused later, because the
    session has moved to the current server.
    """
    await session.sync(path)
    try:
        return await session.get(path)
    except NoNode:
        return None


async def _wait_deleted(session: ZooKeeperSession, path: str) -> bool:
    """Wait until a znode is gone, for up to two session timeouts. Return whether it is gone."""
    try:
        async with asyncio.timeout(2 * session.timeout):
            with session.watch_exists(path) as watch:
                while await watch.read() is not None:
                    await watch.changed.wait()
    except TimeoutError:
        return False
    return True


def _describe_owner(session: ZooKeeperSession, owner: int) -> str:
    if owner == 0:
        return "a persistent node exists"
    if owner == session.session_id:
        return "this session owns it, with other data"
    return f"it belongs to session 0x{owner:x}"
