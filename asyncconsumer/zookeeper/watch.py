"""Watches as Events: what they are about may have changed, whenever they are set.

They are level-triggered. An Event is set from the start, is cleared only right before a read, and
is set again by everything after which the last read may be old: the server's word, a new
connection, a new session, a read that failed. So nothing has to be armed again after a reconnect,
and no change can fall into a gap: at worst somebody reads once more than was needed.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from aiozk.protocol import WatchEvent

from asyncconsumer.zookeeper.requests import WatchNotification

T = TypeVar("T")


class WatchKind(enum.Enum):
    """What of a node is watched."""

    DATA = "data"
    CHILDREN = "children"
    EXISTS = "exists"


_CONCERNS: Final = {
    # the data or the children of a missing node are watched by watching whether it exists
    WatchEvent.CREATED: tuple(WatchKind),
    WatchEvent.DELETED: tuple(WatchKind),
    WatchEvent.DATA_CHANGED: (WatchKind.DATA, WatchKind.EXISTS),
    WatchEvent.CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}


class Watch(Generic[T]):
    """One watcher of one node: ``await watch.changed.wait()``, then ``await watch.read()``.

    ```python
    with session.watch_children("/brokers/ids") as watch:
        while True:
            await watch.changed.wait()
            brokers = await watch.read()  # None while there is no such node
    ```
    """

    def __init__(
        self,
        table: "Watches",
        path: str,
        kind: WatchKind,
        read: Callable[[str], Awaitable[T]],
        bell: asyncio.Event | None = None,
    ) -> None:
        self.path = path
        self.kind = kind
        self.changed = asyncio.Event()
        self.changed.set()
        self._bell = bell
        self._table = table
        self._read = read
        table.add(self)

    def __repr__(self) -> str:
        state = "set" if self.changed.is_set() else "quiet"
        return f"<Watch of {self.kind.value} of {self.path}, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    async def read(self) -> T:
        """What is there now. If that changes, or cannot be read, `changed` is set."""
        self.changed.clear()
        try:
            return await self._read(self.path)
        except BaseException:
            self.stir()
            raise

    def stir(self) -> None:
        """What was read may be old. Who waits for many watches has given them a bell."""
        self.changed.set()
        if self._bell is not None:
            self._bell.set()

    def close(self) -> None:
        """Be told no more. The server may still send one event, which nobody hears."""
        self._table.remove(self)


class Watches:
    """Who watches what."""

    def __init__(self) -> None:
        self._by_path: dict[str, list[Watch[object]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_path.values()))

    def add(self, watch: Watch[T]) -> None:
        """From now on it is told."""
        self._by_path.setdefault(watch.path, []).append(watch)  # type: ignore[arg-type] # only read

    def remove(self, watch: Watch[T]) -> None:
        """From now on it is not."""
        there = [one for one in self._by_path.get(watch.path, ()) if one is not watch]
        if there:
            self._by_path[watch.path] = there
        else:
            self._by_path.pop(watch.path, None)

    def happened(self, event: WatchNotification) -> None:
        """The server says so."""
        concerned = _CONCERNS.get(event.type, ())
        for watch in self._by_path.get(event.path, ()):
            if watch.kind in concerned:
                watch.stir()

    def set_all(self) -> None:
        """Nobody knows what was missed."""
        for watches in self._by_path.values():
            for watch in watches:
                watch.stir()
