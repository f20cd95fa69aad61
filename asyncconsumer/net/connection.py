"""One connection to one broker: requests out, answers in, in order, any number on their way."""

import asyncio
import copy
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import inf
from typing import Final, NamedTuple, TypeVar, cast

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import Request, RequestStruct, Response

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

# Decoding makes Python objects of each few bytes. The answers of control traffic are far smaller,
# and a broker that sends a larger one is not to take our memory.
_MOST_TO_DECODE: Final = 16 * 2**20
_INT_32: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">ihhih")  # size, API, version, correlation, length of client id

E = TypeVar("E", bound=ConsumerError)


class RawResponse(NamedTuple):
    """The body of an answer, undecoded, and the version and the API that it is of."""

    version: int
    body: memoryview
    api: int = -1


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """A request on its way. Its answer is dropped when nobody waits for it any more."""

    correlation: int
    request: RequestStruct
    answer: asyncio.Future[RawResponse]
    deadline: asyncio.TimerHandle
    at_once: Callable[[RawResponse], None] | None


class BrokerConnection(asyncio.BufferedProtocol):
    """A pipelined connection. `net.opening` opens it; it ends once and for all.

    All decisions are synchronous: whatever ends the connection fails every pending request before
    anything else runs. A request that is cancelled leaves the connection as it is. One that times
    out closes it, for the answers come in the order of the requests.
    """

    def __init__(self, address: Address, config: ConnectionConfig) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}  # that the broker speaks, by API
        self.expires = inf  # by the loop's clock: when the broker will no longer honour our login
        self._config = config
        self._frames = Frames(config.max_frame_bytes)
        self._pending: deque[_PendingRequest] = deque()
        self._correlation = 0
        self.last_heard = _now()  # when bytes last came
        self._idle: asyncio.TimerHandle
        self._transport: asyncio.Transport
        self._ending: ConsumerError | None = None
        self._gone = asyncio.Event()

    def __repr__(self) -> str:
        state = "open" if self._ending is None else f"ended ({self._ending})"
        return (
            f"<Connection to {self.address}, {state}, {len(self._pending)} requests on their way>"
        )

    @property
    def ending(self) -> ConsumerError | None:
        """Why it takes no more requests, None while it does; a ClosedError is our own doing."""
        return self._ending

    @property
    def usable(self) -> bool:
        """Whether to send another request here."""
        return self._ending is None and _now() < self.expires

    @property
    def gone(self) -> bool:
        """Whether its socket is closed."""
        return self._gone.is_set()

    async def request(self, message: Request, *, timeout: float | None = None) -> Response:
        """Send a request and decode its answer."""
        pending = self._send(message, timeout, None)
        return self._decode(pending.request, (await pending.answer).body)

    def send_raw(
        self,
        message: Request,
        *,
        timeout: float | None = None,
        at_once: Callable[[RawResponse], None] | None = None,
    ) -> asyncio.Future[RawResponse]:
        """Send a request now, without waiting; its answer is not decoded.

        Who must not lose a turn of the event loop has the answer shown `at_once`, when it comes and
        is still waited for; what is raised there is raised where it is awaited.
        """
        return self._send(message, timeout, at_once).answer

    def receive(self, answer: asyncio.Future[RawResponse]) -> None:
        """Take what comes now, until that answer is there, without a turn of the event loop.

        For who is alone on the loop: a large answer comes in dozens of pieces, each of which would
        be a turn. When nothing more comes, or all is over, the loop sees to it as ever.
        """
        socket = RawSocket(self._transport)
        while self._ending is None and not answer.done():
            count = socket.take(self._frames.room())
            if count == 0:
                return
            self.buffer_updated(count)

    def close(self, error: ConsumerError | None = None) -> None:
        """End it now, because of an error if there is one. Requests on their way fail."""
        self._end(error or ClosedError(f"the connection to {self.address} was closed"))

    def retire(self) -> None:
        """Take no more requests, and end once those on their way are answered."""
        if self._ending is None and self._pending:
            self._ending = ClosedError(f"the connection to {self.address} was retired")
        elif self._ending is None:
            self.close()

    async def wait_closed(self) -> None:
        """Wait until the socket of an ended connection is closed."""
        await self._gone.wait()

    # --- requests --------------------------------------------------------------------------------

    def _send(
        self,
        message: Request,
        timeout: float | None,
        at_once: Callable[[RawResponse], None] | None,
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
        except (ValueError, struct.error) as error:  # a text or a number that does not fit
            raise ConfigError(f"{_name(request)} cannot be asked like this: {error}") from error
        self._transport.write(frame)
        allowed = self._config.request_timeout_ms / 1000 if timeout is None else timeout
        loop = asyncio.get_running_loop()
        late = loop.call_later(allowed, self._timed_out, self._correlation, allowed)
        pending = _PendingRequest(self._correlation, request, loop.create_future(), late, at_once)
        self._pending.append(pending)
        return pending

    def _frame(self, request: RequestStruct) -> bytes:
        """The bytes of a request: aiokafka's header of it takes as long as all the rest."""
        client = self._config.client_id.encode()
        rest = (b"\0" if is_flexible(request) else b"") + request.encode()  # no tags
        size = _HEADER.size - _INT_32.size + len(client) + len(rest)
        api, version = request.API_KEY, request.API_VERSION
        return b"".join(
            (_HEADER.pack(size, api, version, self._correlation, len(client)), client, rest)
        )

    def _timed_out(self, correlation: int, allowed: float) -> None:
        late = next(one for one in self._pending if one.correlation == correlation)
        self._pending.remove(late)
        reason = f"no answer to {_name(late.request)} within {allowed:g} s"
        _fail(late, RequestTimedOut(self.address, reason))
        self._end(ConnectionLost(self.address, f"closed, for there was {reason}"))

    def _decode(self, request: RequestStruct, body: memoryview) -> Response:
        api, version = _name(request), request.API_VERSION
        if len(body) > _MOST_TO_DECODE:
            reason = f"an answer to {api} of {len(body)} bytes"
            raise FrameTooLarge(self.address, reason)
        data = BytesIO(body)
        try:
            return request.RESPONSE_TYPE.decode(data)
        except (ValueError, struct.error) as error:
            reason = f"{error} (from {self.address})"
            broken = MalformedResponse(api, version, data.tell(), reason)
            self._end(broken)
            raise broken from error

    # --- what the transport calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._watch_idleness()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where received bytes go."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were received."""
        self.last_heard = _now()
        try:
            for frame in self._frames.received(nbytes):
                self._answered(frame)
        except BadLength as bad:
            self._end(_no_frame(self.address, bad, self._config.max_frame_bytes))
        except MalformedResponse as error:
            self._end(error)
        if self._ending is not None and not self._pending:
            self._transport.abort()

    def eof_received(self) -> bool:
        """The broker closed its side."""
        self._end(self._lost(None))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._end(self._lost(exc))
        self._gone.set()

    def _answered(self, frame: memoryview) -> None:
        (correlation,) = _INT_32.unpack_from(frame)
        expected = self._pending[0].correlation if self._pending else None
        if correlation != expected:
            api, version = "?", -1
            if self._pending:
                api, version = _name(self._pending[0].request), self._pending[0].request.API_VERSION
            reason = f"correlation id {correlation} in place of {expected} (from {self.address})"
            raise MalformedResponse(api, version, 0, reason)
        pending = self._pending[0]
        start = _INT_32.size
        if is_flexible(pending.request):
            start = self._skip_tags(pending.request, frame, start)
        self._pending.popleft()
        pending.deadline.cancel()
        if not pending.answer.done():
            request = pending.request
            _answer(pending, RawResponse(request.API_VERSION, frame[start:], request.API_KEY))

    def _skip_tags(self, request: RequestStruct, frame: memoryview, start: int) -> int:
        """Where the body begins, behind the header's tagged fields, of which there are none yet."""
        if len(frame) > start and frame[start] == 0:
            return start + 1
        data = BytesIO(frame)
        try:
            request.parse_response_header(data)
        except (ValueError, struct.error) as error:
            reason = f"{error} (from {self.address})"
            raise MalformedResponse(_name(request), request.API_VERSION, start, reason) from error
        return data.tell()

    # --- endings ---------------------------------------------------------------------------------

    def _watch_idleness(self) -> None:
        allowed = self._config.connections_max_idle_ms / 1000
        idle_for = 0.0 if self._pending else _now() - self.last_heard
        if idle_for >= allowed - 0.001:  # clocks and timers round
            self._end(ClosedError(f"the connection to {self.address} was idle"))
        else:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(allowed - idle_for, self._watch_idleness)

    def _lost(self, cause: Exception | None) -> ConnectionLost:
        reason = f"the connection broke: {cause}" if cause else "the broker closed the connection"
        if self._pending and self._pending[0].correlation == 2 and not self._config.logs_in:
            # all that may be asked before a login is ApiVersions, the first request of all
            reason += " on the first request, perhaps it wants a login (security_protocol SASL_...)"
        return _caused(ConnectionLost(self.address, reason), cause)

    def _end(self, error: ConsumerError) -> None:
        """Fail what is pending and close the socket. The first reason is the one that is kept."""
        if self._ending is None:
            self._ending = error
        while self._pending:
            _fail(self._pending.popleft(), error)
        self._idle.cancel()
        self._transport.abort()


def _answer(pending: _PendingRequest, raw: RawResponse) -> None:
    try:
        if pending.at_once is not None:
            pending.at_once(raw)
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to who waits
        pending.answer.set_exception(error)
    else:
        pending.answer.set_result(raw)


def _fail(pending: _PendingRequest, error: ConsumerError) -> None:
    pending.deadline.cancel()
    if not pending.answer.done():
        # each waiter raises a copy: tracebacks grow where an exception is raised
        pending.answer.set_exception(_caused(copy.copy(error), error.__cause__))
        pending.answer.exception()  # asked for: a pipeline may drop the rest after its first error


def _caused(error: E, cause: BaseException | None) -> E:
    """What `raise error from cause` does, for an error that is raised elsewhere."""
    error.__cause__ = cause
    return error


def _no_frame(address: Address, bad: BadLength, most: int) -> ConsumerError:
    """What came where the length of a response should be."""
    if bad.head[0] in (0x15, 0x16) and bad.head[1] == 3:  # a TLS record: alert or handshake
        return NotTls(address, "it answers in TLS, and we do not speak it")
    if bad.head.isascii() and bad.head.decode().isprintable():
        return FrameTooLarge(address, f"it answers in text, {bad.head.decode()!r}, not in Kafka's")
    return FrameTooLarge(address, f"a response of {bad.length} bytes, allowed are 4 to {most}")


def _now() -> float:
    return asyncio.get_running_loop().time()


def _name(request: RequestStruct) -> str:
    return type(request).__name__.partition("Request")[0]
