"""Servers, sessions and watches of the fake, and the verbs that break them."""

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from aiozk import protocol
from aiozk.protocol.request import Request

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
from asyncconsumer.testing.fake_zookeeper.transport import Answer, FakeLine, Network
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
    """What becomes of a write."""

    DONE = enum.auto()
    LOST_BEFORE = enum.auto()  # the connection breaks, and it was not done
    LOST_AFTER = enum.auto()  # it was done, and the connection breaks before the answer


@dataclass(slots=True, eq=False)
class _Session:
    id: int
    password: bytes
    timeout: float
    heard: float
    line: FakeLine | None = None
    timer: asyncio.TimerHandle | None = None

    def attach(self, line: FakeLine) -> None:
        """From now on it goes through this line."""
        self.line, self.heard = line, _now()

    def is_overdue(self) -> bool:
        """Whether its client was silent for too long."""
        return _now() >= self.heard + self.timeout

    def look_later(self, look: "Callable[[_Session], None]") -> None:
        """Look again when it may be overdue."""
        loop = asyncio.get_running_loop()
        self.timer = loop.call_at(self.heard + self.timeout, look, self)


class FakeClient:
    """One client of the fake: `open` is its opener, `isolate` and `rejoin` its fate."""

    def __init__(self, ensemble: "FakeZooKeeper", network: Network) -> None:
        self._ensemble = ensemble
        self.isolate: Final = network.isolate
        self.rejoin: Final = network.rejoin
        self._network = network

    @property
    def connect(self) -> str:
        """The connection string."""
        return self._ensemble.connect

    async def open(
        self, address: Address, config: ZooKeeperConfig, hello: ConnectRequest
    ) -> FakeLine:
        """The opener for a ZooKeeperSession."""
        return await self._ensemble.open_over(self._network, address, hello)


class FakeZooKeeper:
    """An ensemble in memory. `connect` and `open` are for a ZooKeeperSession.

    `on_write` decides the fate of each write as it arrives. `latency` is the least and the most
    that a message takes, `lag` how long a commit may take to be seen by the other servers. The
    verbs take effect at once; `server` is a number, from 0. `tree` is what was committed.
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
            raise ConfigError(f"servers={servers}, latency={latency}, lag={lag}: no ensemble")
        addresses = [Address(f"zk{number}", 2181) for number in range(servers)]
        self.tree: Final = Tree()
        self._commits: list[Commit] = []
        self.servers: Final = {
            address: FakeServer(address, self, self._commits) for address in addresses
        }
        self.operations = 0  # that arrived, without pings
        self.on_write: Callable[[int, Request], Fate] = lambda session_id, request: Fate.DONE
        self._latency = latency
        self._network = Network(randomness, *latency)
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0
        self._lag = lag

    @property
    def connect(self) -> str:
        """The connection string."""
        return ",".join(map(str, self.servers))

    @property
    def sessions(self) -> list[int]:
        """The live sessions, oldest first."""
        return list(self._sessions)

    # --- faults ----------------------------------------------------------------------------------

    def cut(self, server: int | None = None) -> None:
        """Break all connections, of one server or of all."""
        for each in self._chosen(server):
            for line in list(each.lines):
                each.lines.pop(line)
                line.hang_up("the connection broke")

    def stop(self, server: int | None = None) -> None:
        """Take servers down: connections break, new ones are refused."""
        self.cut(server)
        for each in self._chosen(server):
            each.rise(up=False)

    def start(self, server: int | None = None) -> None:
        """Bring servers back."""
        for each in self._chosen(server):
            each.rise(up=True)

    def freeze(self, server: int | None = None) -> None:
        """Let servers hear and say nothing; sessions that only they could hear of run out."""
        for each in self._chosen(server):
            each.freeze()

    def thaw(self, server: int | None = None) -> None:
        """Let frozen servers go on; what arrived meanwhile is done now."""
        for each in self._chosen(server):
            each.thaw()

    def expire(self, session_id: int) -> None:
        """End a session, as if its client had not been heard of."""
        if (session := self._sessions.get(session_id)) is not None:
            line = session.line
            self._end(session)
            if line is not None:
                self._hang_up(line, "the session expired")

    def apply(self, request: Request) -> Any:  # noqa: ANN401 - of many kinds
        """Do something by hand, at once; watchers are told."""
        return self._commit(lambda tree: tree.apply(request))

    def _chosen(self, server: int | None) -> list[FakeServer]:
        all_of_them = list(self.servers.values())
        return all_of_them if server is None else [all_of_them[server]]

    # --- connections -----------------------------------------------------------------------------

    def client(self) -> "FakeClient":
        """A client with a network of its own, to be isolated from all servers."""
        return FakeClient(self, Network(self._network.randomness, *self._latency))

    async def open(
        self, address: Address, config: ZooKeeperConfig, hello: ConnectRequest
    ) -> FakeLine:
        """The opener for a ZooKeeperSession."""
        return await self.open_over(self._network, address, hello)

    async def open_over(
        self, network: Network, address: Address, hello: ConnectRequest
    ) -> FakeLine:
        """A line over a network."""
        server = self.servers.get(address)
        await network.cross()
        if server is None or not server.up:
            raise ServerUnusable(address, "nobody listens there")
        while server.frozen:
            await server.thawed.wait()
        if hello.last_zxid > server.tree.zxid:
            raise ServerUnusable(address, "it has not seen yet what we have seen")
        line = FakeLine(server, self._welcome(hello), network)
        if line.welcome.session_id:
            self._attach(line)
        await network.cross()  # cancelled here, the welcome is lost
        if not server.up:
            raise ServerUnusable(address, "the server closed the connection")
        return line

    def _welcome(self, hello: ConnectRequest) -> ConnectResponse:
        if not hello.session_id:
            self._last_session += 1
            password = self._network.randomness.randbytes(16)
            session_id, timeout = self._last_session, hello.timeout_ms / 1000
            session = _Session(session_id, password, timeout, _now())
            self._sessions[session_id] = session
            self._look_at(session)
            return ConnectResponse(session_id, password, hello.timeout_ms)
        known = self._sessions.get(hello.session_id)
        if known is None or known.password != hello.password:
            return ConnectResponse(0, bytes(16), 0)
        return ConnectResponse(known.id, known.password, int(known.timeout * 1000))

    def _attach(self, line: FakeLine) -> None:
        session = self._sessions[line.welcome.session_id]
        if session.line is not None:
            self._hang_up(session.line, "the session moved")
        session.attach(line)
        self._server(line).lines[line] = None

    def _hang_up(self, line: FakeLine, reason: str, *, after_answers: bool = False) -> None:
        server = self._server(line)
        server.lines.pop(line, None)
        hang_up = partial(line.hang_up, reason, after_answers=after_answers)
        if server.frozen:
            server.hold(hang_up)  # not even that is heard of it
        else:
            hang_up()

    def _server(self, line: FakeLine) -> FakeServer:
        server = line.server
        assert isinstance(server, FakeServer)
        return server

    # --- sessions --------------------------------------------------------------------------------

    def _look_at(self, session: _Session) -> None:
        """End it if it was silent for too long, or look again when that may be so."""
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

    def handle(self, line: FakeLine, xid: int, call: Call[Any]) -> None:
        """A call has arrived at a server."""
        session = self._sessions.get(line.welcome.session_id)
        if session is None:
            return  # the line is about to hear that it is over
        if session.line is not line:
            line.tell(Answer(xid, self.tree.zxid, SessionMoved.code, None))
            return
        session.attach(line)
        opcode = call.request.opcode
        if opcode in _ASIDE:
            line.tell(Answer(xid, self.tree.zxid, 0, None))
        elif opcode == _CLOSE:
            self._end(session)
            line.tell(Answer(xid, self.tree.zxid, 0, None))
            self._hang_up(line, "the session was closed", after_answers=True)
        else:
            self.operations += 1
            self._do(session, line, xid, call.request)

    def _do(self, session: _Session, line: FakeLine, xid: int, request: Request) -> None:
        server = self._server(line)
        if request.opcode in _READS:
            if request.opcode == _SYNC:
                server.catch_up()
            answer = _answer(xid, server, lambda: server.tree.apply(request))
            if getattr(request, "watch", False) and _sets_watch(answer, request):
                server.watchers.add(line, request)
            line.tell(answer)
            return
        fate = self.on_write(session.id, request)
        if fate is Fate.LOST_BEFORE:
            self._hang_up(line, "the connection broke")
            return
        # its own server has seen a write before it answers, and has told those who watch
        change = partial(Tree.apply, request=request, session_id=session.id)
        answer = _answer(xid, server, lambda: self._commit(change, server))
        if fate is Fate.LOST_AFTER:
            self._hang_up(line, "the connection broke")
        else:
            line.tell(answer)

    def _commit(self, change: Commit, at: FakeServer | None = None) -> Any:  # noqa: ANN401
        """Do it, for all; who is not `at` that server hears of it later. Or raise."""
        result = change(self.tree)
        self.tree.take_events()
        self._commits.append(change)
        loop, count = asyncio.get_running_loop(), len(self._commits)
        for server in self.servers.values():
            if server is at or not self._lag:
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
    """A watch is set on what is there, and on what is not by asking whether it exists."""
    missing = request.opcode == protocol.ExistsRequest.opcode and answer.error == NoNode.code
    return not answer.error or missing


def _now() -> float:
    return asyncio.get_running_loop().time()
