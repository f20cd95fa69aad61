"""One connection, whose server is played by a test, on virtual time."""

import asyncio
import struct
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from aiozk import protocol

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import AuthFailed, ClosedError, ConnectionLoss, NoNode, ServerUnusable
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import Address
from asyncconsumer.zookeeper import requests
from asyncconsumer.zookeeper.connection import ZooKeeperConnection
from asyncconsumer.zookeeper.requests import Call, WatchNotification
from asyncconsumer.zookeeper.session import ZooKeeperSession
from asyncconsumer.zookeeper.transport import (
    ConnectRequest,
    ConnectResponse,
    Receiver,
    SocketTransport,
)

pytestmark = pytest.mark.fast

ZK = Address("zk", 2181)
GOOD = ConnectResponse(7, b"p" * 16, 6_000)
PING, AUTH = -2, -4


class Script:
    """A transport whose server is the test, and a receiver of the connection's events."""

    def __init__(self, welcome: ConnectResponse = GOOD) -> None:
        self.connect_response = welcome
        self.sent: list[tuple[float, int, Call[Any]]] = []
        self.events: list[WatchNotification] = []
        self.endings = 0
        self.dropped = False
        self.answers_pings = True
        self.receiver: Receiver | None = None

    def listen(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def send(self, xid: int, call: Call[Any]) -> None:
        self.sent.append((now(), xid, call))
        if xid == PING and self.answers_pings:
            asyncio.get_running_loop().call_later(0.01, self.answer, PING)

    def answer(self, xid: int, body: bytes = b"", *, error: int = 0) -> None:
        if not self.dropped and self.receiver is not None:
            self.receiver.answered(xid, 1, error, memoryview(body))

    def read(self, call: Call[Any], body: Any) -> Any:
        return call.read(body)

    def drop(self) -> None:
        self.dropped = True

    async def wait_closed(self) -> None:
        assert self.dropped

    def happened(self, event: WatchNotification) -> None:
        self.events.append(event)

    def ended(self, connection: ZooKeeperConnection) -> None:
        self.endings += 1

    def xids(self) -> list[int]:
        return [xid for _, xid, _ in self.sent]


def now() -> float:
    return asyncio.get_running_loop().time()


def connected(script: Script) -> ZooKeeperConnection:
    return ZooKeeperConnection(ZK, script, script, now(), 0)


def a_path(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


@simulated(range(5), limit=1000)
async def test_responses_are_matched_to_their_calls() -> None:
    script = Script()
    connection = connected(script)
    first, second, third = (connection.send(requests.sync(f"/{n}")) for n in range(3))
    script.answer(1, a_path("/0"))
    assert first.result() == "/0"
    second.cancel()
    script.answer(2, a_path("/1"))  # dropped
    script.answer(3, error=-101)
    with pytest.raises(NoNode, match="/2"):
        await third
    connection.close(ClosedError("over"))
    assert (script.dropped, script.endings) == (True, 1)


@simulated(range(5), limit=1000)
async def test_pings_are_sent_only_on_an_idle_connection() -> None:
    script = Script()
    connection = connected(script)
    await asyncio.sleep(19)
    times = [when for when, xid, _ in script.sent if xid == PING]
    assert len(times) == 9
    assert all(1.9 < later - sooner < 2.1 for sooner, later in pairwise(times))
    script.sent.clear()
    for xid in range(1, 31):
        answer = connection.send(requests.sync("/"))
        script.answer(xid, a_path("/"))
        await answer
        await asyncio.sleep(1)
    assert PING not in script.xids()
    connection.close(ClosedError("over"))


@simulated(range(5), limit=1000)
async def test_a_silent_server_is_given_up_after_two_thirds_of_the_timeout() -> None:
    script = Script()
    script.answers_pings = False
    connection = connected(script)
    call = connection.send(requests.get("/n"))
    with pytest.raises(ConnectionLoss, match=r"/n: zk:2181: no data for 4\.0 s"):
        await call
    assert 3.99 < now() < 4.01
    assert isinstance(connection.ending, ServerUnusable)
    with pytest.raises(ConnectionLoss) as caught:
        connection.send(requests.get("/n"))
    assert not caught.value.maybe_applied


@simulated(range(5), limit=1000)
async def test_a_server_that_answers_only_pings_is_given_up() -> None:
    connection = connected(Script())
    with pytest.raises(ConnectionLoss, match="no answer to GetData in 6"):
        await connection.send(requests.get("/n"))
    assert now() < 6.1


@simulated(range(5), limit=1000)
async def test_every_pending_call_has_failed_before_the_end_is_reported() -> None:
    script = Script()
    connection = connected(script)
    answers = [connection.send(requests.get(f"/{n}")) for n in range(50)]
    done: list[bool] = []

    def ended(connection: ZooKeeperConnection) -> None:
        done.extend(answer.done() for answer in answers)

    script.ended = ended  # type: ignore[method-assign]
    connection.lost("cut")
    connection.lost("cut again")
    assert done == [True] * 50
    assert "cut" in str(connection.ending)


@pytest.mark.parametrize(
    ("xid", "body", "words"),
    [
        (2, b"", "answered request 2 out of order"),
        (AUTH, b"", "answered request -4"),
        (0, b"", "answered request 0"),
        (1, b"\0\0", "its answer to GetData is invalid"),
        (1, struct.pack(">i", 2**31 - 1), "is invalid"),
    ],
)
def test_an_invalid_response_ends_the_connection(xid: int, body: bytes, words: str) -> None:
    @simulated([0], limit=100)
    async def scenario() -> None:
        script = Script()
        connection = connected(script)
        answer = connection.send(requests.get("/n"))
        script.answer(xid, body)
        assert words in str(connection.ending)
        with pytest.raises(ConnectionLoss):
            await answer

    scenario()


@pytest.mark.parametrize("code", [-112, -118])
def test_an_expired_session_ends_the_connection(code: int) -> None:
    @simulated([0], limit=100)
    async def scenario() -> None:
        script = Script()
        connection = connected(script)
        answer = connection.send(requests.get("/n"))
        script.answer(1, error=code)
        assert connection.ending is not None
        assert answer.exception() is not None

    scenario()


class Wire(asyncio.Transport):
    """A transport that stores written data. A test passes received data."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True


def receive(line: SocketTransport, data: bytes) -> None:
    room = line.get_buffer(-1)
    room[: len(data)] = data
    line.buffer_updated(len(data))


WELCOME = struct.pack(">iiiqi16s", 36, 0, 6_000, 7, 16, b"p" * 16)


@simulated([0], limit=100)
async def test_a_transport_that_ended_early_ends_the_connection() -> None:
    line, script, wire = SocketTransport(ZK, 1024), Script(), Wire()
    line.connection_made(wire)
    receive(line, WELCOME)  # TLS may deliver the last bytes and the end together
    line.eof_received()
    assert line.connect_response == GOOD
    connection = ZooKeeperConnection(ZK, line, script, now(), 0)
    assert "closed the connection" in str(connection.ending)
    assert (script.endings, wire.aborted) == (1, True)


@simulated([0], limit=100)
async def test_calls_of_one_turn_are_sent_together_and_in_order() -> None:
    line, script, wire = SocketTransport(ZK, 1024), Script(), Wire()
    line.connection_made(wire)
    receive(line, WELCOME)
    connection = ZooKeeperConnection(ZK, line, script, now(), 0)
    answers = [connection.send(requests.sync(f"/{n}")) for n in range(3)]
    await asyncio.sleep(0)
    assert len(wire.written) == 1
    for xid in range(1, 4):
        body = struct.pack(">iqi", xid, 5, 0) + a_path(f"/{xid - 1}")
        receive(line, struct.pack(">i", len(body)) + body)
    assert [answer.result() for answer in answers] == ["/0", "/1", "/2"]
    event = struct.pack(">iqiii", -1, -1, 0, 3, 3) + a_path("/n")
    receive(line, struct.pack(">i", len(event)) + event)
    assert script.events == [WatchNotification(3, "/n")]
    receive(line, struct.pack(">iiq", 12, 1, 0))  # too short for the error code
    assert "does not speak" in str(connection.ending)


@simulated([0], limit=100)
async def test_a_response_before_any_call_is_refused() -> None:
    line, wire = SocketTransport(ZK, 1024), Wire()
    line.connection_made(wire)
    receive(line, WELCOME + struct.pack(">iiqi", 16, 1, 0, 0))
    assert wire.aborted


@simulated([0], limit=100)
async def test_request_numbers_wrap_around() -> None:
    script = Script()
    connection = connected(script)
    connection._xid = 2**31 - 2
    for xid in (2**31 - 1, 1, 2):
        answer = connection.send(requests.sync("/"))
        script.answer(xid, a_path("/"))
        await answer
    assert script.xids() == [2**31 - 1, 1, 2]
    connection.close(ClosedError("over"))


@simulated([0], limit=100)
async def test_a_refused_login_is_raised_at_the_start() -> None:
    class Refusing(Script):
        def send(self, xid: int, call: Call[Any]) -> None:
            super().send(xid, call)
            if isinstance(call.request, protocol.AuthRequest):
                asyncio.get_running_loop().call_soon(lambda: self.answer(xid, error=-115))

    async def opener(
        address: Address, config: ZooKeeperConfig, connect_request: ConnectRequest
    ) -> Script:
        await asyncio.sleep(0)
        return Refusing()

    config = ZooKeeperConfig(zookeeper_connect="zk", auth="alice:s3cret")
    with pytest.raises(AuthFailed, match="Check `zookeeper_auth`") as caught:
        async with ZooKeeperSession(config, randomness=Random(0), opener=opener):
            pytest.fail("opened")
    assert "s3cret" not in str(caught.value)
    assert now() < 1


@simulated([0], limit=100)
async def test_a_connect_request_has_the_session_and_the_last_zxid() -> None:
    connect_requests: list[ConnectRequest] = []
    scripts: list[Script] = []

    async def opener(
        address: Address, config: ZooKeeperConfig, connect_request: ConnectRequest
    ) -> Script:
        await asyncio.sleep(0)
        connect_requests.append(connect_request)
        scripts.append(Script())
        return scripts[-1]

    config = ZooKeeperConfig(zookeeper_connect="zk", session_timeout_ms=9_000)
    async with ZooKeeperSession(config, randomness=Random(0), opener=opener) as zk:
        assert connect_requests == [ConnectRequest(0, bytes(16), 9_000, 0)]
        receiver = scripts[0].receiver
        assert receiver is not None
        await asyncio.sleep(2.5)  # a ping was answered, at zxid 1
        receiver.lost("cut")
        assert not zk.connected.is_set()
        await zk.connected.wait()
        assert connect_requests[1] == ConnectRequest(7, b"p" * 16, 6_000, 1)
        scripts[-1].receiver = None  # the close is not answered, so it waits for the timeout
    assert now() < 5
