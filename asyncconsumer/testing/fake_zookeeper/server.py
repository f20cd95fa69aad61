"""One server of the fake: a copy of the tree, which may be behind, and who watches it there."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from aiozk import protocol
from aiozk.protocol import WatchEvent
from aiozk.protocol.request import Request

from asyncconsumer.testing.fake_zookeeper.transport import FakeLine
from asyncconsumer.testing.fake_zookeeper.tree import Tree
from asyncconsumer.types import Address
from asyncconsumer.zookeeper.requests import Call, WatchNotification

Commit: TypeAlias = Callable[[Tree], Any]

_OF_CHILDREN: Final = protocol.GetChildrenRequest.opcode


class Handler(Protocol):
    """Who answers calls."""

    def handle(self, line: FakeLine, xid: int, call: Call[Any]) -> None:
        """A call has arrived at a server."""


class Watchers:
    """Who is to be told what, once."""

    def __init__(self) -> None:
        # dicts for sets, whose order no seed governs
        self._of_data: dict[str, dict[FakeLine, None]] = {}
        self._of_children: dict[str, dict[FakeLine, None]] = {}

    def add(self, line: FakeLine, request: Request) -> None:
        """Tell this line when what it asked for changes."""
        table = self._of_children if request.opcode == _OF_CHILDREN else self._of_data
        table.setdefault(request.path, {})[line] = None

    def told(self, event: WatchNotification) -> Iterable[FakeLine]:
        """Those to be told of an event; they watch no longer."""
        if event.type == WatchEvent.CHILDREN_CHANGED:
            return self._of_children.pop(event.path, {})
        of_data = self._of_data.pop(event.path, {})
        if event.type == WatchEvent.DELETED:
            return of_data | self._of_children.pop(event.path, {})
        return of_data


class FakeServer:
    """A door to the ensemble. It has seen the first so many of all commits."""

    def __init__(self, address: Address, handler: Handler, commits: Sequence[Commit]) -> None:
        self.address: Final = address
        self.tree: Final = Tree()
        self.watchers: Final = Watchers()
        self.lines: Final[dict[FakeLine, None]] = {}
        self.up = True
        self.frozen = False
        self.thawed = asyncio.Event()
        self._held: list[Callable[[], None]] = []
        self._handler = handler
        self._commits = commits
        self._seen = 0

    def catch_up(self, count: int | None = None) -> None:
        """See the commits up to that one, or all; tell those who watch."""
        if self.frozen or not self.up:
            return
        goal = len(self._commits) if count is None else count
        while self._seen < goal:
            commit = self._commits[self._seen]
            self._seen += 1
            commit(self.tree)
        for event in self.tree.take_events():
            for line in self.watchers.told(event):
                line.tell(event)

    def handle(self, line: FakeLine, xid: int, call: Call[Any]) -> None:
        """A call has arrived."""
        self._handler.handle(line, xid, call)

    def hold(self, act: Callable[[], None]) -> None:
        """Do this when we are thawed."""
        self._held.append(act)

    def freeze(self) -> None:
        """Hear and say nothing."""
        self.frozen = True
        self.thawed.clear()

    def thaw(self) -> None:
        """Go on; what arrived meanwhile is done now."""
        self.frozen = False
        self.catch_up()
        self.thawed.set()
        held, self._held = self._held, []
        for act in held:
            act()

    def rise(self, *, up: bool) -> None:
        """Take connections, or refuse them."""
        self.up = up
        self.catch_up()
