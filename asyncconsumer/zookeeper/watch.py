"""Watches as events, which are set whenever the watched znode may have changed.

The event of a watch is set at the start, and cleared right before each read. It is set again when
the result of the last read may be outdated: after a watch event of the server, a new connection, a
new session, or a failed read. So callers need not renew watches after a reconnect, and no change is
missed. Sometimes the event is set although nothing has changed.
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
    """The aspect of a znode that is watched: its data, children or existence."""

    DATA = "data"
    CHILDREN = "children"
    EXISTS = "exists"


_CONCERNS: Final = {
    # A watch of data or children of a missing node is a watch of its existence.
    WatchEvent.CREATED: tuple(WatchKind),
    WatchEvent.DELETED: tuple(WatchKind),
    WatchEvent.DATA_CHANGED: (WatchKind.DATA, WatchKind.EXISTS),
    WatchEvent.CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}


class Watch(Generic[T]):
    """A watch of one znode: ``await watch.changed.wait()``, then ``await watch.read()``.

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
        wakeup: asyncio.Event | None = None,
    ) -> None:
        self.path = path
        self.kind = kind
        self.changed = asyncio.Event()
        self.changed.set()
        self._wakeup = wakeup
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
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def read(self) -> T:
        """Read and return the current value.

        The event `changed` is set if the value changes later, and also if the read fails.
        """
        self.changed.clear()
        try:
            return await self._read(self.path)
        except BaseException:
            self.mark_changed()
            raise

    def mark_changed(self) -> None:
        """Set `changed`, because the last read may be outdated.

        The `wakeup` event is set as well. Several watches may share that event.
        """
        self.changed.set()
        if self._wakeup is not None:
            self._wakeup.set()

    def close(self) -> None:
        """Close the watch. The server may still send one event, which is ignored."""
        self._table.remove(self)


class Watches:
    """The open watches of a session by path."""

    def __init__(self) -> None:
        self._by_path: dict[str, list[Watch[object]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_path.values()))

    def add(self, watch: Watch[T]) -> None:
        """Add a watch."""
        self._by_path.setdefault(watch.path, []).append(watch)  # type: ignore[arg-type] # only read

    def remove(self, watch: Watch[T]) -> None:
        """Remove a watch."""
        remaining = [other for other in self._by_path.get(watch.path, ()) if other is not watch]
        if remaining:
            self._by_path[watch.path] = remaining
        else:
            self._by_path.pop(watch.path, None)

    def happened(self, event: WatchNotification) -> None:
        """Mark the watches that an event of the server concerns as changed."""
        concerned = _CONCERNS.get(event.type, ())
        for watch in self._by_path.get(event.path, ()):
            if watch.kind in concerned:
                watch.mark_changed()

    def set_all(self) -> None:
        """Mark all watches as changed, because events may have been missed."""
        for watches in self._by_path.values():
            for watch in watches:
                watch.mark_changed()
