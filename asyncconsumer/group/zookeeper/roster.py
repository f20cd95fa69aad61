"""The registered members of a ZooKeeper group, read incrementally."""

import asyncio
import logging
from typing import Final, NamedTuple

from asyncconsumer.errors import BadZnode
from asyncconsumer.group.zookeeper import registration
from asyncconsumer.group.zookeeper.filters import StreamSubscription
from asyncconsumer.zookeeper.paths import GroupPaths
from asyncconsumer.zookeeper.session import ZooKeeperSession

_log: Final = logging.getLogger(__name__)


class _Count(NamedTuple):
    """The number of changes of a znode's children (`cversion`).

    `node` is the id of the transaction that created the znode (`czxid`). It differs if the znode
    was deleted and created again.
    """

    node: int
    changes: int

    def after(self, more: int) -> "_Count":
        return self._replace(changes=self.changes + more)


class Roster:
    """The members of a group and their subscriptions.

    The event `wakeup` is set when members join or leave.

    Reading all registrations after each change would cost the server quadratic work in large
    groups. Registrations are never modified, so known ones are not read again. A member may leave
    and register again under the same name with another subscription. The parent znode counts all
    changes of its children. If it counts more than are visible, all registrations are read again.
    """

    def __init__(self, session: ZooKeeperSession, group_id: str, wakeup: asyncio.Event) -> None:
        self._session = session
        self._group = group_id
        self._ids = GroupPaths(group_id).ids
        self._watch = session.watch_children(self._ids, wakeup)
        self._known: dict[str, StreamSubscription | None] = {}  # None for a malformed registration
        self._count: _Count | None = None  # the counter for `_known`

    async def read(self) -> dict[str, StreamSubscription]:
        """Return the current members and their subscriptions, sorted by consumer id."""
        names = set(await self._watch.read() or ())
        count = await self._read_count()
        seen = len(names ^ self._known.keys())
        if count is None or self._count is None or count != self._count.after(seen):
            self._known.clear()
        self._count = None
        for name in self._known.keys() - names:
            del self._known[name]
        await self._read(sorted(names - self._known.keys()))
        if names == self._known.keys():
            self._count = count  # otherwise a member left meanwhile and `wakeup` is set
        return {name: known for name, known in sorted(self._known.items()) if known is not None}

    def close(self) -> None:
        """Close the watch of the members' registrations."""
        self._watch.close()

    async def _read_count(self) -> _Count | None:
        """Return the change counter of the parent znode, or None if it is missing.

        Also return None if the members have changed since their names were read.
        """
        stat = await self._session.exists(self._ids)
        # the server sends a watch event before it shows the change to the watcher
        if stat is None or self._watch.changed.is_set():
            return None
        return _Count(stat.created_zxid, stat.children_version)

    async def _read(self, names: list[str]) -> None:
        paths = [f"{self._ids}/{name}" for name in names]
        nodes = await self._session.get_many(paths)
        for name, path, node in zip(names, paths, nodes, strict=True):
            if node is None:
                continue
            self._known[name] = None
            await asyncio.sleep(0)  # decoding a registration may take milliseconds
            try:
                self._known[name] = registration.read(path, node.data)
            except BadZnode as error:
                _log.warning("a member of group %s is ignored: %s", self._group, error)
