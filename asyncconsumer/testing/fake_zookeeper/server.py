"""A server of the fake ensemble, with its own copy of the znodes, and its watchers."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from aiozk import protocol
from aiozk.protocol import WatchEvent
from aiozk.protocol.request import Request

from asyncconsumer.testing.fake_zookeeper.transport import FakeZooKeeperTransport
from asyncconsumer.testing.fake_zookeeper.tree import Tree
from asyncconsumer.types import Address
from asyncconsumer.zookeeper.requests import Call, WatchNotification

Commit: TypeAlias = Callable[[Tree], Any]

_OF_CHILDREN: Final = protocol.GetChildrenRequest.opcode


class Handler(Protocol):
    """An object that handles the requests of clients."""

    def handle(self, transport: FakeZooKeeperTransport, xid: int, call: Call[Any]) -> None:
        """Handle a request that a server received on `transport`."""


class Watchers:
    """The watches that clients have set at a server. Each watch reports one event."""

    def __init__(self) -> None:
        # dicts, because the order of sets does not depend on the seed
        self._of_data: dict[str, dict[FakeZooKeeperTransport, None]] = {}
        self._of_children: dict[str, dict[FakeZooKeeperTransport, None]] = {}

    def add(self, transport: FakeZooKeeperTransport, request: Request) -> None:
        """Set the watch for which `request` asks. `transport` gets its event."""
        table = self._of_children if request.opcode == _OF_CHILDREN else self._of_data
        table.setdefault(request.path, {})[transport] = None

    def take_watchers(self, event: WatchNotification) -> Iterable[FakeZooKeeperTransport]:
        """Return the transports of the clients that watch for `event`. Remove their watches."""
        if event.type == WatchEvent.CHILDREN_CHANGED:
            return self._of_children.pop(event.path, {})
        of_data = self._of_data.pop(event.path, {})
        if event.type == WatchEvent.DELETED:
            return of_data | self._of_children.pop(event.path, {})
        return of_data


class FakeServer:
    """A server of the ensemble, which may not have applied the newest commits.

    `commits` is the list of all commits of the ensemble, in order.
    """

    def __init__(self, address: Address, handler: Handler, commits: Sequence[Commit]) -> None:
        self.address: Final = address
        self.tree: Final = Tree()
        self.watchers: Final = Watchers()
        self.transports: Final[dict[FakeZooKeeperTransport, None]] = {}
        self.up = True
        self.frozen = False
        self.thawed = asyncio.Event()
        self._held: list[Callable[[], None]] = []
        self._handler = handler
        self._commits = commits
        self._seen = 0

    def catch_up(self, count: int | None = None) -> None:
        """Apply the commits that this server lacks, and notify watchers of the changes.

        Apply only the first `count` commits of the ensemble, or all commits if it is None. Do
        nothing while the server is frozen or down.
        """
        if self.frozen or not self.up:
            return
        goal = len(self._commits) if count is None else count
        while self._seen < goal:
            commit = self._commits[self._seen]
            self._seen += 1
            commit(self.tree)
        for event in self.tree.take_events():
            for transport in self.watchers.take_watchers(event):
                transport.tell(event)

    def handle(self, transport: FakeZooKeeperTransport, xid: int, call: Call[Any]) -> None:
        """Pass a request to the ensemble. The transport calls this only if the server runs."""
        self._handler.handle(transport, xid, call)

    def hold(self, act: Callable[[], None]) -> None:
        """Call `act` after the server is thawed."""
        self._held.append(act)

    def freeze(self) -> None:
        """Stop handling requests and sending responses until `thaw` is called."""
        self.frozen = True
        self.thawed.clear()

    def thaw(self) -> None:
        """Resume the server. Handle the requests that arrived meanwhile."""
        self.frozen = False
        self.catch_up()
        self.thawed.set()
        held, self._held = self._held, []
        for act in held:
            act()

    def rise(self, *, up: bool) -> None:
        """Accept connections if `up`, and refuse them otherwise."""
        self.up = up
        self.catch_up()
