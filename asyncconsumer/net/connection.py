"""A pipelined connection to one broker, with any number of requests in flight."""

import asyncio
import copy
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import inf
from typing import Final, NamedTuple, TypeVar, cast

from asyncconsumer.aio.clock import loop_time
from asyncconsumer.aiokafka_parts import IncompatibleBrokerVersion, Request, RequestStruct, Response
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    ClosedError,
    ConfigError,
    ConnectionLost,
    ConsumerError,
    FrameTooLarge,
    MalformedResponse,
    NotTls,
    RequestTimedOut,
    UnsupportedBroker,
)
from asyncconsumer.net.raw_socket import RawSocket
from asyncconsumer.protocol.flexible import is_flexible
from asyncconsumer.protocol.frames import BadLength, Frames
from asyncconsumer.types import Address

# Decoding creates a Python object for every few bytes. Responses of control traffic are far
# smaller. The limit protects memory from a broker that sends a larger one.
_MAX_DECODED_BYTES: Final = 16 * 2**20
_INT_32: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">ihhih")  # size, API, version, correlation id, length of client id

E = TypeVar("E", bound=ConsumerError)


class RawResponse(NamedTuple):
    """The undecoded body of a response, with its version and API key."""

    version: int
    body: memoryview
    api: int = -1


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """A request in flight.

    If its future is done before the response arrives, for example cancelled, the response is
    dropped.
    """

    correlation: int
    request: RequestStruct
    response: asyncio.Future[RawResponse]
    deadline: asyncio.TimerHandle
    on_response: Callable[[RawResponse], None] | None


class BrokerConnection(asyncio.BufferedProtocol):
    """A pipelined connection, opened by `net.connect`. After its end it is never opened again.

    When the connection ends, all pending requests fail in the same iteration of the event loop. The
    cancellation of a request does not affect the connection. A request that times out closes it,
    because responses arrive in the order of the requests.
    """

    def __init__(self, address: Address, config: ConnectionConfig) -> None:
        self.address = address
        # the first and last version that the broker supports, by API key
        self.versions: dict[int, tuple[int, int]] = {}
        self.expires = inf  # loop time of the last use, shortly before the SASL session ends
        self._config = config
        self._frames = Frames(config.max_frame_bytes)
        self._pending: deque[_PendingRequest] = deque()
        self._correlation = 0
        self.last_received = loop_time()  # loop time at which bytes last arrived
        self._idle: asyncio.TimerHandle
        self._transport: asyncio.Transport
        self._ending: ConsumerError | None = None
        self._closed = asyncio.Event()

    def __repr__(self) -> str:
        state = "open" if self._ending is None else f"ended ({self._ending})"
        return f"<Connection to {self.address}, {state}, {len(self._pending)} requests in flight>"

    @property
    def ending(self) -> ConsumerError | None:
        """Return the error that ended the connection, or None while it accepts requests.

        `ClosedError` means that this client closed it.
        """
        return self._ending

    @property
    def usable(self) -> bool:
        """Return whether another request may be sent."""
        return self._ending is None and loop_time() < self.expires

    @property
    def is_closed(self) -> bool:
        """Return whether the socket is closed."""
        return self._closed.is_set()

    async def request(self, message: Request, *, timeout: float | None = None) -> Response:
        """Send a request and return its decoded response."""
        pending = self._send(message, timeout, None)
        return self._decode(pending.request, (await pending.response).body)

    def send_raw(
        self,
        message: Request,
        *,
        timeout: float | None = None,
        on_response: Callable[[RawResponse], None] | None = None,
    ) -> asyncio.Future[RawResponse]:
        """Send a request now, and return a future of its undecoded response.

        `on_response` is called synchronously when the response arrives, one loop iteration before
        the future resolves. It is not called if the future was cancelled. Exceptions that it raises
        are set on the future.
        """
        return self._send(message, timeout, on_response).response

    def receive(self, response: asyncio.Future[RawResponse]) -> None:
        """Read from the socket until `response` is done, without running the event loop.

        Use this if no other task needs the loop. A large response arrives in dozens of pieces, each
        of which would take a loop iteration. If no more bytes arrive, or the connection ends, the
        method returns, and the event loop reads the rest.
        """
        socket = RawSocket(self._transport)
        while self._ending is None and not response.done():
            count = socket.read_into(self._frames.room())
            if count == 0:
                return
            self.buffer_updated(count)

    def close(self, error: ConsumerError | None = None) -> None:
        """Close the connection now. Requests in flight fail with `error`, or with ClosedError."""
        self._end(error or ClosedError(f"the connection to {self.address} was closed"))

    def close_silent(self, seconds: float) -> None:
        """Close the connection, because no byte has arrived for `seconds`.

        The error of the requests in flight contains this duration.
        """
        self.close(ConnectionLost(self.address, f"no byte arrived for {seconds:.1f} s"))

    def retire(self) -> None:
        """Accept no more requests.

        Close the connection after the requests in flight are answered.
        """
        if self._ending is None and self._pending:
            self._ending = ClosedError(f"the connection to {self.address} was retired")
        elif self._ending is None:
            self.close()

    async def wait_closed(self) -> None:
        """Wait until the socket of an ended connection is closed."""
        await self._closed.wait()

    # --- requests --------------------------------------------------------------------------------

    def _send(
        self,
        message: Request,
        timeout: float | None,
        on_response: Callable[[RawResponse], None] | None,
    ) -> _PendingRequest:
        if self._ending is not None:
            raise ConnectionLost(self.address, f"closed before the request: {self._ending}")
        try:
            request = message.prepare(self.versions)
        except (IncompatibleBrokerVersion, NotImplementedError) as error:
            raise UnsupportedBroker(self.address, str(error)) from error
        self._correlation = (self._correlation + 1) % 2**31
        try:
            frame = self._frame(request)
        except (ValueError, struct.error) as error:  # a string or a number that does not fit
            raise ConfigError(f"{_name(request)} cannot be encoded: {error}") from error
        self._transport.write(frame)
        allowed = self._config.request_timeout_ms / 1000 if timeout is None else timeout
        loop = asyncio.get_running_loop()
        late = loop.call_later(allowed, self._timed_out, self._correlation, allowed)
        pending = _PendingRequest(
            self._correlation, request, loop.create_future(), late, on_response
        )
        self._pending.append(pending)
        return pending

    def _frame(self, request: RequestStruct) -> bytes:
        """Return the bytes of a request.

        aiokafka's own encoder takes as long for the header as for all other fields.
        """
        client = self._config.client_id.encode()
        rest = (b"\0" if is_flexible(request) else b"") + request.encode()  # no tagged fields
        size = _HEADER.size - _INT_32.size + len(client) + len(rest)
        api, version = request.API_KEY, request.API_VERSION
        return b"".join(
            (_HEADER.pack(size, api, version, self._correlation, len(client)), client, rest)
        )

    def _timed_out(self, correlation: int, allowed: float) -> None:
        late = next(pending for pending in self._pending if pending.correlation == correlation)
        self._pending.remove(late)
        reason = f"no response to {_name(late.request)} within {allowed:g} s"
        _fail(late, RequestTimedOut(self.address, reason))
        self._end(ConnectionLost(self.address, f"closed because there was {reason}"))

    def _decode(self, request: RequestStruct, body: memoryview) -> Response:
        api, version = _name(request), request.API_VERSION
        if len(body) > _MAX_DECODED_BYTES:
            reason = f"a response to {api} of {len(body)} bytes; the limit is {_MAX_DECODED_BYTES}"
            raise FrameTooLarge(self.address, reason)
        data = BytesIO(body)
        try:
            return request.RESPONSE_TYPE.decode(data)
        except (ValueError, struct.error) as error:
            reason = f"{error} (from {self.address})"
            broken = MalformedResponse(api, version, data.tell(), reason)
            self._end(broken)
            raise broken from error

    # --- callbacks of the transport --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the open socket."""
        # uvloop's transport is not a subclass
        self._transport = cast("asyncio.Transport", transport)
        self._check_idle()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for received bytes."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        self.last_received = loop_time()
        try:
            for frame in self._frames.received(nbytes):
                self._on_frame(frame)
        except BadLength as bad:
            self._end(_frame_error(self.address, bad, self._config.max_frame_bytes))
        except MalformedResponse as error:
            self._end(error)
        if self._ending is not None and not self._pending:
            self._transport.abort()

    def eof_received(self) -> bool:
        """End the connection, because the broker has closed its side."""
        self._end(self._lost(None))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection, because the socket is closed."""
        self._end(self._lost(exc))
        self._closed.set()

    def _on_frame(self, frame: memoryview) -> None:
        (correlation,) = _INT_32.unpack_from(frame)
        expected = self._pending[0].correlation if self._pending else None
        if correlation != expected:
            api, version = "?", -1
            if self._pending:
                api, version = _name(self._pending[0].request), self._pending[0].request.API_VERSION
            reason = f"correlation id {correlation} instead of {expected} (from {self.address})"
            raise MalformedResponse(api, version, 0, reason)
        pending = self._pending[0]
        start = _INT_32.size
        if is_flexible(pending.request):
            start = self._skip_tags(pending.request, frame, start)
        self._pending.popleft()
        pending.deadline.cancel()
        if not pending.response.done():
            request = pending.request
            _resolve(pending, RawResponse(request.API_VERSION, frame[start:], request.API_KEY))

    def _skip_tags(self, request: RequestStruct, frame: memoryview, start: int) -> int:
        """Return the position in `frame` of the response body, after the header's tagged fields.

        The fields begin at `start`. Kafka defines no tagged header fields yet.
        """
        if len(frame) > start and frame[start] == 0:
            return start + 1
        data = BytesIO(frame)
        try:
            request.parse_response_header(data)
        except (ValueError, struct.error) as error:
            reason = f"{error} (from {self.address})"
            raise MalformedResponse(_name(request), request.API_VERSION, start, reason) from error
        return data.tell()

    # --- closing ---------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        allowed = self._config.connections_max_idle_ms / 1000
        idle_for = 0.0 if self._pending else loop_time() - self.last_received
        if idle_for >= allowed - 0.001:  # tolerance for timer rounding
            self._end(ClosedError(f"the connection to {self.address} was idle"))
        else:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(allowed - idle_for, self._check_idle)

    def _lost(self, cause: Exception | None) -> ConnectionLost:
        reason = f"the connection broke: {cause}" if cause else "the broker closed the connection"
        if self._pending and self._pending[0].correlation == 2 and not self._config.logs_in:
            # before a login a broker accepts only ApiVersions, which is request 1
            reason += " on the first request; it may require a login (`security_protocol` SASL_...)"
        return _caused(ConnectionLost(self.address, reason), cause)

    def _end(self, error: ConsumerError) -> None:
        """Fail all pending requests with `error`, and close the socket."""
        if self._ending is None:
            self._ending = error
        while self._pending:
            _fail(self._pending.popleft(), error)
        self._idle.cancel()
        self._transport.abort()


def _resolve(pending: _PendingRequest, raw: RawResponse) -> None:
    try:
        if pending.on_response is not None:
            pending.on_response(raw)
    except Exception as error:  # noqa: BLE001 - any error goes to the waiting caller
        pending.response.set_exception(error)
    else:
        pending.response.set_result(raw)


def _fail(pending: _PendingRequest, error: ConsumerError) -> None:
    pending.deadline.cancel()
    if not pending.response.done():
        # Each waiter gets a copy, because raising an exception extends its traceback.
        pending.response.set_exception(_caused(copy.copy(error), error.__cause__))
        # The error counts as retrieved, because a caller may drop its futures after one error.
        pending.response.exception()


def _caused(error: E, cause: BaseException | None) -> E:
    """Return `error` with its cause set, as `raise error from cause` does, without raising it."""
    error.__cause__ = cause
    return error


def _frame_error(address: Address, bad: BadLength, limit: int) -> ConsumerError:
    """Return the error for a response whose first four bytes are not a valid length."""
    if bad.head[0] in (0x15, 0x16) and bad.head[1] == 3:  # a TLS record: alert or handshake
        return NotTls(address, "it responds with TLS; set `security_protocol` to SSL or SASL_SSL")
    if bad.head.isascii() and bad.head.decode().isprintable():
        return FrameTooLarge(
            address, f"it responds with text, {bad.head.decode()!r}, not with Kafka's protocol"
        )
    return FrameTooLarge(address, f"a response of {bad.length} bytes; 4 to {limit} are allowed")


def _name(request: RequestStruct) -> str:
    return type(request).__name__.partition("Request")[0]
