"""The way to one server: a socket that carries calls and answers, after the handshake.

What stands above it knows no bytes: a fake server on virtual time may stand in for all of this.
"""

import asyncio
import ssl
import struct
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from aiozk import protocol

from asyncconsumer.aio.name_resolution import connect
from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import ServerUnusable
from asyncconsumer.protocol.frames import BadLength, Frames
from asyncconsumer.types import Address
from asyncconsumer.zookeeper.requests import Call, WatchNotification, read_event

T = TypeVar("T")
Body: TypeAlias = Any  # bytes over a socket; a fake may hand over the value itself

NOTIFICATION: Final = -1  # the xid of an event, which answers no request

_WELCOME: Final = struct.Struct(">iiqi")  # version, timeout, session id, length of the password
_HEAD: Final = struct.Struct(">iqi")  # xid, zxid, error


class ConnectRequest(NamedTuple):
    """What we say first. An id of 0 asks for a new session."""

    session_id: int
    password: bytes
    timeout_ms: int
    last_zxid: int


class ConnectResponse(NamedTuple):
    """What the server says to it. An id of 0 says that the session has expired."""

    session_id: int
    password: bytes
    timeout_ms: int


class Receiver(Protocol):
    """Who is told what comes in; none of it may raise."""

    def answered(self, xid: int, zxid: int, error: int, body: Body) -> None:
        """The answer to the call that was sent under this xid."""

    def notified(self, event: WatchNotification) -> None:
        """A watch was triggered."""

    def lost(self, reason: str) -> None:
        """The end; called once."""


class Transport(Protocol):
    """An open line to a server that has welcomed us."""

    @property
    def welcome(self) -> ConnectResponse:
        """The server's answer to our hello."""

    def listen(self, receiver: Receiver) -> None:
        """From now on, tell what comes in."""

    def send(self, xid: int, call: Call[Any]) -> None:
        """Send a call."""

    def read(self, call: Call[T], body: Body) -> T:
        """What the body of an answer says; ValueError or struct.error if that is nonsense."""

    def drop(self) -> None:
        """Break off now; nothing more is told."""

    async def wait_closed(self) -> None:
        """Wait until nothing is left of it."""


class TransportOpener(Protocol):
    """How lines are opened. `open_line` is the real one."""

    async def __call__(
        self, address: Address, config: ZooKeeperConfig, hello: ConnectRequest
    ) -> Transport:
        """A line whose handshake is done, or ServerUnusable. Cancelling it leaves nothing."""


class SocketTransport(asyncio.BufferedProtocol):
    """A line over TCP or TLS."""

    def __init__(self, address: Address, most: int) -> None:
        self._address = address
        self._frames = Frames(most)
        self._receiver: Receiver | None = None
        self._transport: asyncio.Transport
        self._greeting: asyncio.Future[ConnectResponse] = asyncio.get_running_loop().create_future()
        self._unsent: list[bytes] = []
        self._ending = ""  # why, once it has ended
        self._gone = asyncio.Event()

    async def greet(self, hello: ConnectRequest) -> None:
        """The handshake. Its answer is the first frame that comes."""
        request = protocol.ConnectRequest(
            protocol_version=0,
            last_seen_zxid=hello.last_zxid,
            timeout=hello.timeout_ms,
            session_id=hello.session_id,
            password=hello.password,
            read_only=False,
        )
        body = request.serialize()
        self._transport.write(len(body).to_bytes(4, "big") + body)
        await self._greeting

    @property
    def welcome(self) -> ConnectResponse:
        """The server's answer to our hello."""
        return self._greeting.result()

    def listen(self, receiver: Receiver) -> None:
        """From now on, tell what comes in."""
        self._receiver = receiver
        if self._ending:
            receiver.lost(self._ending)

    def send(self, xid: int, call: Call[Any]) -> None:
        """Send a call; those of one turn of the loop go out together."""
        body = call.request.serialize(xid)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += (len(body).to_bytes(4, "big"), body)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not self._ending:
            self._transport.write(b"".join(unsent))

    def read(self, call: Call[T], body: memoryview) -> T:
        """What the body of an answer says."""
        return call.read(body)

    def drop(self) -> None:
        """Break off now; nothing more is told."""
        self._receiver = None
        self._end("we broke off")

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        await self._gone.wait()

    # --- what the transport calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where received bytes go."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were received."""
        try:
            for frame in self._frames.received(nbytes):
                self._received(frame)
        except BadLength as bad:
            self._end(_no_frame(bad))
        except (ValueError, struct.error) as error:
            self._end(f"it does not speak ZooKeeper's protocol: {error}")

    def eof_received(self) -> bool:
        """The server closed its side."""
        self._end("the server closed the connection")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._end(f"the connection broke: {exc}" if exc else "the server closed the connection")
        self._gone.set()

    def _received(self, frame: memoryview) -> None:
        if self._ending:
            return
        if not self._greeting.done():
            _, timeout, session_id, length = _WELCOME.unpack_from(frame)
            password = bytes(frame[_WELCOME.size : _WELCOME.size + max(length, 0)])
            self._greeting.set_result(ConnectResponse(session_id, password, timeout))
            return
        xid, zxid, error = _HEAD.unpack_from(frame)
        if self._receiver is None:
            raise ValueError(f"an answer to request {xid} before any was sent")
        body = frame[_HEAD.size :]
        if xid == NOTIFICATION:
            self._receiver.notified(read_event(body))
        else:
            self._receiver.answered(xid, zxid, error, body)

    def _end(self, reason: str) -> None:
        """Say so, then close the socket. The first reason is the one that is kept."""
        if self._ending:
            return
        self._ending = reason
        if not self._greeting.done():
            self._greeting.set_exception(ServerUnusable(self._address, reason))
            self._greeting.exception()  # asked for: nobody may be waiting any more
        if self._receiver is not None:
            self._receiver.lost(reason)
        self._transport.abort()


async def open_line(
    address: Address, config: ZooKeeperConfig, hello: ConnectRequest
) -> SocketTransport:
    """TCP, TLS and the handshake. Nothing is left of a failure."""
    line = SocketTransport(address, config.max_frame_bytes)
    try:
        await connect(lambda: line, address, config.ssl_context)
    except ssl.SSLCertVerificationError as error:
        reason = f"we refuse its certificate: {error.verify_message}"
        raise ServerUnusable(address, reason) from error
    except (OSError, UnicodeError) as error:  # UnicodeError: no host can have such a name
        raise ServerUnusable(address, str(error) or type(error).__name__) from error
    try:
        await line.greet(hello)
    except BaseException:
        line.drop()
        await line.wait_closed()
        raise
    return line


def _no_frame(bad: BadLength) -> str:
    """What came where the length of an answer should be."""
    if bad.head[0] in (0x15, 0x16) and bad.head[1] == 3:  # a TLS record: alert or handshake
        return "it answers in TLS, and we do not speak it: set ssl_context"
    if bad.head.isascii() and bad.head.decode().isprintable():
        return f"it answers in text, {bad.head.decode()!r}: is it a ZooKeeper server?"
    return f"an answer of {bad.length} bytes, which max_frame_bytes does not allow"
