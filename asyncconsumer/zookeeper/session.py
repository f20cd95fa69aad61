"""The ZooKeeper session, with its reads, writes and watches."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from asyncconsumer.errors import BadArguments, NoNode
from asyncconsumer.zookeeper import requests
from asyncconsumer.zookeeper.requests import ANY_VERSION, Acl, Stat, ZnodeData, ZnodeOperation
from asyncconsumer.zookeeper.session_keeper import SessionKeeper
from asyncconsumer.zookeeper.watch import Watch, WatchKind

_NO_PART: Final = re.compile(r"/(\.{0,2})(/|$)|[\x00-\x1f\x7f-\x9f]")  # empty, '.', '..', controls


class ZooKeeperSession(SessionKeeper):
    """A ZooKeeper session for an ``async with`` block. If it expires, a new one replaces it.

    `epoch` is the number of the current session, counted from 1. Ephemeral znodes end with their
    session. Therefore a write may name an epoch, and raises `SessionExpired` if another session has
    replaced the one with that number.

    A call waits for a connection if there is none. If the connection breaks, a read is repeated. A
    write raises `ConnectionLoss` instead, because it may have been applied.
    """

    # --- reads: repeated when a connection breaks ------------------------------------------------

    async def get(self, path: str, *, watch: bool = False) -> ZnodeData:
        """Return the data and metadata of a znode. Raise `NoNode` if it does not exist."""
        return await self.read(requests.get(self._full(path), watch=watch))

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return the metadata of a znode, or None if it does not exist."""
        try:
            return await self.read(requests.exists(self._full(path), watch=watch))
        except NoNode:
            return None

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return the names of the children of a znode, in no order.

        Raise `NoNode` if the znode does not exist.
        """
        return await self.read(requests.children(self._full(path), watch=watch))

    async def get_many(self, paths: Sequence[str]) -> list[ZnodeData | None]:
        """Read many znodes at once. The result for a missing znode is None."""
        return await self.read_many([requests.get(self._full(path)) for path in paths])

    async def children_of_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Read the children of many znodes at once. The result for a missing znode is None."""
        return await self.read_many([requests.children(self._full(path)) for path in paths])

    async def sync(self, path: str = "/") -> None:
        """Make the connected server catch up with the ensemble's leader.

        Later reads then see all earlier writes.
        """
        await self.read(requests.sync(self._full(path)))

    # --- writes: sent once -----------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: Acl | None = None,
        epoch: int | None = None,
    ) -> str:
        """Create a znode. Return its path. A sequential znode has a number after `path`."""
        call = requests.create(
            self._full(path),
            data,
            acl=self._acl if acl is None else acl,
            ephemeral=ephemeral,
            sequential=sequential,
        )
        return (await self.call(call, epoch)).removeprefix(self.config.chroot)

    async def set(
        self,
        path: str,
        data: bytes | None,
        *,
        version: int = ANY_VERSION,
        epoch: int | None = None,
    ) -> Stat:
        """Replace the data of a znode. Return its new metadata."""
        return await self.call(requests.set_data(self._full(path), data, version), epoch)

    async def delete(
        self, path: str, *, version: int = ANY_VERSION, epoch: int | None = None
    ) -> None:
        """Delete a znode that has no children. Raise `NoNode` if it does not exist."""
        await self.call(requests.delete(self._full(path), version), epoch)

    async def write_many(
        self, operations: Sequence[ZnodeOperation], *, epoch: int | None = None
    ) -> list[Any]:
        """Send separate writes at once. The result of a failed write is its `ZooKeeperError`."""
        parts = [requests.operation(op, self._full(op.path), self._acl) for op in operations]
        return await self.call_many(parts, epoch)

    async def multi(
        self, operations: Sequence[ZnodeOperation], *, epoch: int | None = None
    ) -> list[Any]:
        """Apply all operations or none. Return the result of each."""
        parts = [requests.operation(op, self._full(op.path), self._acl) for op in operations]
        return await self.call(requests.transaction(parts), epoch)

    # --- watches ---------------------------------------------------------------------------------

    def watch_data(self, path: str, wakeup: asyncio.Event | None = None) -> Watch[ZnodeData | None]:
        """Watch the data of a znode. The watch reads None while the znode does not exist."""

        async def read(path: str) -> ZnodeData | None:
            while True:
                with suppress(NoNode):
                    return await self.get(path, watch=True)
                if await self.exists(path, watch=True) is None:
                    return None

        return Watch(self.watches, path, WatchKind.DATA, read, wakeup)

    def watch_children(
        self, path: str, wakeup: asyncio.Event | None = None
    ) -> Watch[list[str] | None]:
        """Watch the names of a znode's children.

        The watch reads None while the znode does not exist.
        """

        async def read(path: str) -> list[str] | None:
            while True:
                with suppress(NoNode):
                    return await self.children(path, watch=True)
                if await self.exists(path, watch=True) is None:
                    return None

        return Watch(self.watches, path, WatchKind.CHILDREN, read, wakeup)

    def watch_exists(self, path: str, wakeup: asyncio.Event | None = None) -> Watch[Stat | None]:
        """Watch whether a znode exists. The watch reads None while the znode does not exist."""

        async def read(path: str) -> Stat | None:
            return await self.exists(path, watch=True)

        return Watch(self.watches, path, WatchKind.EXISTS, read, wakeup)

    # --- paths -----------------------------------------------------------------------------------

    @property
    def _acl(self) -> Acl:
        return requests.CREATOR_ALL if self.config.zookeeper_set_acl else requests.WORLD

    def _full(self, path: str) -> str:
        """Return the path with the chroot.

        Raise BadArguments for an invalid path. A path with '..' is invalid, because servers take
        '..' for the name of a znode.
        """
        if path == "/":
            return self.config.chroot or "/"
        if not path.startswith("/") or _NO_PART.search(path) or not _encodes(path):
            raise BadArguments(path, f"the path {path!r} is invalid")
        return self.config.chroot + path


def _encodes(path: str) -> bool:
    try:
        return path.isascii() or bool(path.encode())
    except UnicodeEncodeError:
        return False
