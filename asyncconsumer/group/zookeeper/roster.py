"""Who is registered in a group: read once, and from then on only as far as it changed."""

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
    """Of all comings and goings below a node, which may itself be made anew."""

    node: int
    changes: int

    def after(self, more: int) -> "_Count":
        return self._replace(changes=self.changes + more)


class Roster:
    """The members of a group and their subscriptions. `bell` is rung when they come or go.

    In a large group a member that comes would cost everybody as many reads as there are members,
    and the server the square of that. Registrations are not written again, so those that are known
    are not read again. One may go and come back under its name, with another subscription; but the
    node above them counts all comings and goings. If it counts more than we see, all are read.
    """

    def __init__(self, session: ZooKeeperSession, group_id: str, bell: asyncio.Event) -> None:
        self._session = session
        self._group = group_id
        self._ids = GroupPaths(group_id).ids
        self._watch = session.watch_children(self._ids, bell)
        self._known: dict[str, StreamSubscription | None] = {}  # None for one that makes no sense
        self._count: _Count | None = None  # when that was known

    async def read(self) -> dict[str, StreamSubscription]:
        """Who is there now, in order."""
        names = set(await self._watch.read() or ())
        count = await self._comings_and_goings()
        seen = len(names ^ self._known.keys())
        if count is None or self._count is None or count != self._count.after(seen):
            self._known.clear()
        self._count = None
        for gone in self._known.keys() - names:
            del self._known[gone]
        await self._read(sorted(names - self._known.keys()))
        if names == self._known.keys():
            self._count = count  # or somebody left meanwhile, and the bell has been rung
        return {who: one for who, one in sorted(self._known.items()) if one is not None}

    def close(self) -> None:
        """Watch no more."""
        self._watch.close()

    async def _comings_and_goings(self) -> _Count | None:
        """How many there were until the names were read; None if there were more since."""
        stat = await self._session.exists(self._ids)
        # the server tells who watches of a change before it shows it to them
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
            await asyncio.sleep(0)  # each may take milliseconds, and there may be many
            try:
                self._known[name] = registration.read(path, node.data)
            except BadZnode as error:
                _log.warning("a member of group %s is ignored: %s", self._group, error)
