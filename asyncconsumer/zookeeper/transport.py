"""The transport to one ZooKeeper server: handshake, calls and responses over a socket.

The layers above it handle no bytes, so a simulated transport without a socket can replace it.
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
ResponseBody: TypeAlias = Any  # bytes over a socket; a fake may hand over the value itself

NOTIFICATION: Final = -1  # the xid of watch events

_CONNECTED: Final = struct.Struct(">iiqi")  # version, timeout, session id, password length
_HEAD: Final = struct.Struct(">iqi")  # xid, zxid, error


class ConnectRequest(NamedTuple):
    """The first message of a client. A session id of 0 requests a new session."""

    session_id: int
    password: bytes
    timeout_ms: int
    last_zxid: int


class ConnectResponse(NamedTuple):
    """The response to a `ConnectRequest`. A session id of 0 means that the session has expired."""

    session_id: int
    password: bytes
    timeout_ms: int


class Receiver(Protocol):
    """An object that handles responses and watch events. Its methods must not raise."""

    def answered(self, xid: int, zxid: int, error: int, body: ResponseBody) -> None:
        """Handle the response to the call with this xid."""

    def notified(self, event: WatchNotification) -> None:
        """Handle the event of a triggered watch."""

    def lost(self, reason: str) -> None:
        """Handle the end of the transport. A transport calls this once."""


class Transport(Protocol):
    """The interface of an open connection to a ZooKeeper server, after the session handshake.

    It sends calls, and passes responses and watch events to a receiver.
    """

    @property
    def connect_response(self) -> ConnectResponse:
        """The response of the server to the handshake."""

    def listen(self, receiver: Receiver) -> None:
        """Pass responses and events to `receiver` from now on."""

    def send(self, xid: int, call: Call[Any]) -> None:
        """Send a call with this xid."""

    def read(self, call: Call[T], body: ResponseBody) -> T:
        """Parse the body of a response. Raise ValueError or struct.error if it is invalid."""

    def drop(self) -> None:
        """Close the transport now. The receiver is not called any more."""

    async def wait_closed(self) -> None:
        """Wait until the transport is closed."""


class TransportOpener(Protocol):
    """A function that opens transports. `open_transport` is the one for real servers."""

    async def __call__(
        self, address: Address, config: ZooKeeperConfig, request: ConnectRequest, /
    ) -> Transport:
        """Open a transport and do the handshake. If that fails, raise ServerUnusable.

        A cancelled call leaves nothing open.
        """


class SocketTransport(asyncio.BufferedProtocol):
    """A transport over TCP or TLS."""

    def __init__(self, address: Address, max_frame_bytes: int) -> None:
        self._address = address
        self._frames = Frames(max_frame_bytes)
        self._receiver: Receiver | None = None
        self._transport: asyncio.Transport
        loop = asyncio.get_running_loop()
        self._handshake: asyncio.Future[ConnectResponse] = loop.create_future()
        self._unsent: list[bytes] = []
        self._ending = ""  # why the connection has ended; empty while it is open
        self._closed_event = asyncio.Event()

    async def handshake(self, request: ConnectRequest) -> None:
        """Send the connect request, and wait for the response."""
        message = protocol.ConnectRequest(
            protocol_version=0,
            last_seen_zxid=request.last_zxid,
            timeout=request.timeout_ms,
            session_id=request.session_id,
            password=request.password,
            read_only=False,
        )
        body = message.serialize()
        self._transport.write(len(body).to_bytes(4, "big") + body)
        await self._handshake

    @property
    def connect_response(self) -> ConnectResponse:
        """The response of the server to the handshake."""
        return self._handshake.result()

    def listen(self, receiver: Receiver) -> None:
        """Pass responses and events to `receiver` from now on."""
        self._receiver = receiver
        if self._ending:
            receiver.lost(self._ending)

    def send(self, xid: int, call: Call[Any]) -> None:
        """Send a call. The calls of one loop iteration are written together."""
        body = call.request.serialize(xid)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += (len(body).to_bytes(4, "big"), body)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not self._ending:
            self._transport.write(b"".join(unsent))

    def read(self, call: Call[T], body: memoryview) -> T:
        """Parse the body of a response."""
        return call.read(body)

    def drop(self) -> None:
        """Close the transport now. The receiver is not called any more."""
        self._receiver = None
        self._end("this client closed the connection")

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        await self._closed_event.wait()

    # --- called by the asyncio transport ---------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the asyncio transport of the open socket."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer into which received bytes are written."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Process the received bytes."""
        try:
            for frame in self._frames.received(nbytes):
                self._received(frame)
        except BadLength as bad:
            self._end(_describe_bad_length(bad))
        except (ValueError, struct.error) as error:
            self._end(f"it does not speak ZooKeeper's protocol: {error}")

    def eof_received(self) -> bool:
        """End the transport, because the server closed its side."""
        self._end("the server closed the connection")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the transport, because the socket is closed."""
        self._end(f"the connection broke: {exc}" if exc else "the server closed the connection")
        self._closed_event.set()

    def _received(self, frame: memoryview) -> None:
        if self._ending:
            return
        if not self._handshake.done():
            _, timeout, session_id, length = _CONNECTED.unpack_from(frame)
            password = bytes(frame[_CONNECTED.size : _CONNECTED.size + max(length, 0)])
            self._handshake.set_result(ConnectResponse(session_id, password, timeout))
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
        """Report the end to the receiver, then close the socket.

        Only the first call has an effect.
        """
        if self._ending:
            return
        self._ending = reason
        if not self._handshake.done():
            self._handshake.set_exception(ServerUnusable(self._address, reason))
            self._handshake.exception()  # retrieved, because nothing may await it
        if self._receiver is not None:
            self._receiver.lost(reason)
        self._transport.abort()


async def open_transport(
    address: Address, config: ZooKeeperConfig, request: ConnectRequest
) -> SocketTransport:
    """Connect over TCP or TLS and do the handshake. Close everything after a failure."""
    transport = SocketTransport(address, config.max_frame_bytes)
    try:
        await connect(lambda: transport, address, config.ssl_context)
    except ssl.SSLCertVerificationError as error:
        reason = f"its certificate is refused: {error.verify_message}"
        raise ServerUnusable(address, reason) from error
    except (OSError, UnicodeError) as error:  # UnicodeError: no host can have such a name
        raise ServerUnusable(address, str(error) or type(error).__name__) from error
    try:
        await transport.handshake(request)
    except BaseException:
        transport.drop()
        await transport.wait_closed()
        raise
    return transport


def _describe_bad_length(bad: BadLength) -> str:
    """Describe the bytes that came in place of a valid frame length, for an error."""
    if bad.head[0] in (0x15, 0x16) and bad.head[1] == 3:  # a TLS record: alert or handshake
        return "it answers in TLS; set `zookeeper_ssl_context`"
    if bad.head.isascii() and bad.head.decode().isprintable():
        return f"it answers in text ({bad.head.decode()!r}), so it is not a ZooKeeper server"
    return f"an answer of {bad.length} bytes is larger than `max_frame_bytes`"
