"""The servers, sessions and watches of the fake ensemble, and its faults."""

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from aiozk import protocol
from aiozk.protocol.request import Request

from asyncconsumer.aio.clock import loop_time
from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import (
    ConfigError,
    NoNode,
    ServerUnusable,
    SessionMoved,
    TransactionFailed,
    ZooKeeperError,
)
from asyncconsumer.testing.fake_zookeeper.server import Commit, FakeServer
from asyncconsumer.testing.fake_zookeeper.transport import Answer, FakeZooKeeperTransport, Network
from asyncconsumer.testing.fake_zookeeper.tree import Tree
from asyncconsumer.types import Address
from asyncconsumer.zookeeper.requests import Call
from asyncconsumer.zookeeper.transport import ConnectRequest, ConnectResponse

_READS: Final = frozenset(
    (
        protocol.GetDataRequest.opcode,
        protocol.ExistsRequest.opcode,
        protocol.GetChildrenRequest.opcode,
        protocol.SyncRequest.opcode,
    )
)
_ASIDE: Final = frozenset((protocol.PingRequest.opcode, protocol.AuthRequest.opcode))
_CLOSE: Final = protocol.CloseRequest.opcode
_SYNC: Final = protocol.SyncRequest.opcode


class Fate(enum.Enum):
    """The outcome of a write request: success, or a fault that a test injects."""

    DONE = enum.auto()
    LOST_BEFORE = enum.auto()  # the connection breaks before the write is applied
    LOST_AFTER = enum.auto()  # the write is applied, and the connection breaks before the response


@dataclass(slots=True, eq=False)
class _Session:
    id: int
    password: bytes
    timeout: float
    last_request_at: float
    transport: FakeZooKeeperTransport | None = None
    timer: asyncio.TimerHandle | None = None

    def attach(self, transport: FakeZooKeeperTransport) -> None:
        """Make `transport` the connection of the session, and restart the session timeout."""
        self.transport, self.last_request_at = transport, loop_time()

    def is_overdue(self) -> bool:
        """Return whether the session timeout has passed."""
        return loop_time() >= self.last_request_at + self.timeout

    def look_later(self, look: "Callable[[_Session], None]") -> None:
        """Schedule a call of `look` with this session for the end of the session timeout."""
        loop = asyncio.get_running_loop()
        self.timer = loop.call_at(self.last_request_at + self.timeout, look, self)


class FakeClient:
    """A client with its own network. Pass its method `open` as the opener of a ZooKeeperSession.

    `isolate` delays all messages between the client and the servers until `rejoin`.
    """

    def __init__(self, ensemble: "FakeZooKeeper", network: Network) -> None:
        self._ensemble = ensemble
        self.isolate: Final = network.isolate
        self.rejoin: Final = network.rejoin
        self._network = network

    @property
    def connect(self) -> str:
        """The connection string of the ensemble."""
        return self._ensemble.connect

    async def open(
        self, address: Address, config: ZooKeeperConfig, hello: ConnectRequest
    ) -> FakeZooKeeperTransport:
        """Open a transport for a ZooKeeperSession, over the network of this client."""
        return await self._ensemble.open_over(self._network, address, hello)


class FakeZooKeeper:
    """A ZooKeeper ensemble in memory. Pass its `connect` and `open` to a ZooKeeperSession.

    `latency` is the minimum and the maximum latency of a message, and `lag` the maximum delay until
    other servers see a commit, in seconds. `on_write` is called for each write that arrives, and
    returns its outcome. Methods that inject faults take effect at once. Their argument `server` is
    an index from 0. `tree` has the committed znodes.
    """

    def __init__(
        self,
        servers: int = 1,
        *,
        randomness: Random,
        latency: tuple[float, float] = (0.0002, 0.002),
        lag: float = 0.0,
    ) -> None:
        if servers < 1 or not 0 <= latency[0] <= latency[1] or lag < 0:
            raise ConfigError(
                f"an ensemble cannot have servers={servers}, latency={latency}, lag={lag}: it "
                "needs a server, an ordered pair of latencies, and no negative number"
            )
        addresses = [Address(f"zk{number}", 2181) for number in range(servers)]
        self.tree: Final = Tree()
        self._commits: list[Commit] = []
        self.servers: Final = {
            address: FakeServer(address, self, self._commits) for address in addresses
        }
        self.operations = 0  # requests that arrived, without pings
        self.on_write: Callable[[int, Request], Fate] = lambda session_id, request: Fate.DONE
        self._latency = latency
        self._network = Network(randomness, *latency)
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0
        self._lag = lag

    @property
    def connect(self) -> str:
        """The connection string of the ensemble."""
        return ",".join(map(str, self.servers))

    @property
    def sessions(self) -> list[int]:
        """Return the ids of the live sessions, oldest first."""
        return list(self._sessions)

    # --- faults ----------------------------------------------------------------------------------

    def cut(self, server: int | None = None) -> None:
        """Break all connections to one server, or to all servers."""
        for each in self._chosen(server):
            for transport in list(each.transports):
                each.transports.pop(transport)
                transport.hang_up("the connection broke")

    def stop(self, server: int | None = None) -> None:
        """Stop one server, or all. Their connections break, and new ones are refused."""
        self.cut(server)
        for each in self._chosen(server):
            each.rise(up=False)

    def start(self, server: int | None = None) -> None:
        """Start one stopped server again, or all."""
        for each in self._chosen(server):
            each.rise(up=True)

    def freeze(self, server: int | None = None) -> None:
        """Freeze one server, or all, until `thaw`. Frozen servers answer no request.

        The sessions of their clients expire unless the clients connect to other servers in time.
        """
        for each in self._chosen(server):
            each.freeze()

    def thaw(self, server: int | None = None) -> None:
        """Resume one frozen server, or all. They handle the requests that arrived meanwhile."""
        for each in self._chosen(server):
            each.thaw()

    def expire(self, session_id: int) -> None:
        """Expire a session at once."""
        if (session := self._sessions.get(session_id)) is not None:
            transport = session.transport
            self._end(session)
            if transport is not None:
                self._hang_up(transport, "the session expired")

    def apply(self, request: Request) -> Any:  # noqa: ANN401 - the result depends on the request
        """Apply a request at once, as if it came from another client. Return the result.

        Clients with a watch are notified. If the request fails, its error is raised.
        """
        return self._commit(lambda tree: tree.apply(request))

    def _chosen(self, server: int | None) -> list[FakeServer]:
        all_of_them = list(self.servers.values())
        return all_of_them if server is None else [all_of_them[server]]

    # --- connections -----------------------------------------------------------------------------

    def client(self) -> "FakeClient":
        """Return a client with its own network, which can be isolated."""
        return FakeClient(self, Network(self._network.randomness, *self._latency))

    async def open(
        self, address: Address, config: ZooKeeperConfig, hello: ConnectRequest
    ) -> FakeZooKeeperTransport:
        """Open a transport for a ZooKeeperSession."""
        return await self.open_over(self._network, address, hello)

    async def open_over(
        self, network: Network, address: Address, hello: ConnectRequest
    ) -> FakeZooKeeperTransport:
        """Open a transport to the server at `address`, over the network of one or all clients."""
        server = self.servers.get(address)
        await network.cross()
        if server is None or not server.up:
            raise ServerUnusable(address, "connection refused")
        while server.frozen:
            await server.thawed.wait()
        if hello.last_zxid > server.tree.zxid:
            raise ServerUnusable(address, "its last transaction is older than that of the client")
        transport = FakeZooKeeperTransport(server, self._welcome(hello), network)
        if transport.connect_response.session_id:
            self._attach(transport)
        await network.cross()  # if cancelled here, the connect response is lost
        if not server.up:
            raise ServerUnusable(address, "the server closed the connection")
        return transport

    def _welcome(self, hello: ConnectRequest) -> ConnectResponse:
        if not hello.session_id:
            self._last_session += 1
            password = self._network.randomness.randbytes(16)
            session_id, timeout = self._last_session, hello.timeout_ms / 1000
            session = _Session(session_id, password, timeout, loop_time())
            self._sessions[session_id] = session
            self._look_at(session)
            return ConnectResponse(session_id, password, hello.timeout_ms)
        known = self._sessions.get(hello.session_id)
        if known is None or known.password != hello.password:
            return ConnectResponse(0, bytes(16), 0)
        return ConnectResponse(known.id, known.password, int(known.timeout * 1000))

    def _attach(self, transport: FakeZooKeeperTransport) -> None:
        session = self._sessions[transport.connect_response.session_id]
        if session.transport is not None:
            self._hang_up(session.transport, "the session moved")
        session.attach(transport)
        self._server(transport).transports[transport] = None

    def _hang_up(
        self, transport: FakeZooKeeperTransport, reason: str, *, after_answers: bool = False
    ) -> None:
        server = self._server(transport)
        server.transports.pop(transport, None)
        hang_up = partial(transport.hang_up, reason, after_answers=after_answers)
        if server.frozen:
            server.hold(hang_up)  # a frozen server does not close it yet
        else:
            hang_up()

    def _server(self, transport: FakeZooKeeperTransport) -> FakeServer:
        server = transport.server
        assert isinstance(server, FakeServer)
        return server

    # --- sessions --------------------------------------------------------------------------------

    def _look_at(self, session: _Session) -> None:
        """Expire a session if its timeout has passed, otherwise schedule the next check."""
        if session.is_overdue():
            self.expire(session.id)
        else:
            session.look_later(self._look_at)

    def _end(self, session: _Session) -> None:
        del self._sessions[session.id]
        if session.timer is not None:
            session.timer.cancel()
        self._commit(lambda tree: tree.end_session(session.id))

    # --- calls -----------------------------------------------------------------------------------

    def handle(self, transport: FakeZooKeeperTransport, xid: int, call: Call[Any]) -> None:
        """Handle a request that a server received on `transport`, and send the response."""
        session = self._sessions.get(transport.connect_response.session_id)
        if session is None:
            return  # the session has expired, and the client will soon receive that
        if session.transport is not transport:
            transport.tell(Answer(xid, self.tree.zxid, SessionMoved.code, None))
            return
        session.attach(transport)
        opcode = call.request.opcode
        if opcode in _ASIDE:
            transport.tell(Answer(xid, self.tree.zxid, 0, None))
        elif opcode == _CLOSE:
            self._end(session)
            transport.tell(Answer(xid, self.tree.zxid, 0, None))
            self._hang_up(transport, "the session was closed", after_answers=True)
        else:
            self.operations += 1
            self._do(session, transport, xid, call.request)

    def _do(
        self, session: _Session, transport: FakeZooKeeperTransport, xid: int, request: Request
    ) -> None:
        server = self._server(transport)
        if request.opcode in _READS:
            if request.opcode == _SYNC:
                server.catch_up()
            answer = _answer(xid, server, lambda: server.tree.apply(request))
            if getattr(request, "watch", False) and _sets_watch(answer, request):
                server.watchers.add(transport, request)
            transport.tell(answer)
            return
        fate = self.on_write(session.id, request)
        if fate is Fate.LOST_BEFORE:
            self._hang_up(transport, "the connection broke")
            return
        # the server applies a write and notifies its watchers before it answers
        change = partial(Tree.apply, request=request, session_id=session.id)
        answer = _answer(xid, server, lambda: self._commit(change, server))
        if fate is Fate.LOST_AFTER:
            self._hang_up(transport, "the connection broke")
        else:
            transport.tell(answer)

    def _commit(self, change: Commit, receiver: FakeServer | None = None) -> Any:  # noqa: ANN401
        """Apply a change to the committed tree. Return its result or raise its error.

        The server `receiver` sees the commit at once. The others see it up to `lag` seconds later.
        """
        result = change(self.tree)
        self.tree.take_events()
        self._commits.append(change)
        loop, count = asyncio.get_running_loop(), len(self._commits)
        for server in self.servers.values():
            if server is receiver or not self._lag:
                server.catch_up(count)
            else:
                late = self._network.randomness.uniform(0, self._lag)
                loop.call_later(late, server.catch_up, count)
        return result


def _answer(xid: int, server: FakeServer, act: Callable[[], Any]) -> Answer:
    try:
        result = act()
    except TransactionFailed as error:
        return Answer(xid, server.tree.zxid, 0, error)
    except ZooKeeperError as error:
        return Answer(xid, server.tree.zxid, error.code, None)
    return Answer(xid, server.tree.zxid, 0, result)


def _sets_watch(answer: Answer, request: Request) -> bool:
    """Return whether a read request that asks for a watch sets the watch.

    A failed request sets no watch, except `exists` for a znode that does not exist.
    """
    missing = request.opcode == protocol.ExistsRequest.opcode and answer.error == NoNode.code
    return not answer.error or missing
