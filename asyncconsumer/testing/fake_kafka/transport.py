"""The transport between a client and a fake broker: bytes in transit, in order."""

import asyncio
import enum
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from asyncconsumer.net.connection import BrokerConnection

_HEADER: Final = Struct(">ihhih")  # size, API key, version, correlation id, length of the client id
_FRAME: Final = Struct(">ii")


class ReceivedRequest(NamedTuple):
    """A received request. The body of the request begins at the index `start` of `data`."""

    api: int
    version: int
    correlation: int
    start: int
    data: bytes


class Server(Protocol):
    """The interface of a broker that a transport needs."""

    reachable: bool  # if not, bytes stay in transit in both directions

    def latency(self) -> float:
        """Return the latency of the next frame, in seconds."""

    def handle(self, received: ReceivedRequest, transport: "FakeTransport") -> None:
        """Handle a request, and call `transport.answer` once, now or later."""

    @property
    def running(self) -> bool:
        """Whether the broker handles requests."""

    def on_disconnect(self, transport: "FakeTransport") -> None:
        """Remove a transport from the open connections, because the client has closed it."""


class _State(enum.Enum):
    OPEN = "both ends are there"
    CUT = "the broker's end is gone, and the client cannot know yet"
    OVER = "closed"


class FakeTransport(asyncio.Transport):
    """A transport for a real `BrokerConnection` to a fake broker.

    As a real broker does, the fake handles a request only after the previous one is answered. A
    Fetch request that waits for records delays the next requests of its connection.
    """

    def __init__(self, connection: BrokerConnection, server: Server) -> None:
        super().__init__()
        self._connection = connection
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._coming: deque[bytes] = deque()  # requests in transit
        self._inbox: deque[bytes] = deque()
        self._going: deque[bytes] = deque()  # responses in transit
        self._stuck: list[Callable[[], None]] = []  # arrivals that a broken link delays
        self._current: ReceivedRequest | None = None
        self._give_up: Callable[[], None] | None = None
        self._state = _State.OPEN
        connection.connection_made(self)

    # --- client side -----------------------------------------------------------------------------

    def write(self, data: Any) -> None:  # noqa: ANN401 - asyncio accepts any buffer
        """Send the bytes of a request to the broker."""
        if self._state is not _State.OVER:
            self._coming.append(bytes(data))
            self._loop.call_later(self._server.latency(), self._arrive)

    def abort(self) -> None:
        """Close the connection from the client side."""
        self._server.on_disconnect(self)
        self._close(None)

    # --- broker side -----------------------------------------------------------------------------

    def answer(self, body: bytes, *, pause: float = 0.0) -> None:
        """Send the response to the current request.

        Handle the next request after `pause` seconds.
        """
        if self._state is not _State.OPEN:
            return
        received, self._give_up = self._current, None
        assert received is not None, "a second answer to one request"
        self._going.append(_FRAME.pack(len(body) + 4, received.correlation) + body)
        self._loop.call_later(self._server.latency(), self._deliver)
        if pause:
            self._loop.call_later(pause, self._next)
        else:
            self._next()

    def on_end(self, give_up: Callable[[], None]) -> None:
        """Call `give_up` if the connection is closed before the current request is answered."""
        self._give_up = give_up

    def serve(self) -> None:
        """Pass the next request to the broker, if the broker runs and no request is in progress."""
        while self._inbox and self._idle():
            data = self._inbox.popleft()
            _, api, version, correlation, named = _HEADER.unpack_from(data)
            received = ReceivedRequest(
                api, version, correlation, _HEADER.size + max(named, 0), data
            )
            self._current = received
            self._server.handle(received, self)

    def release(self) -> None:
        """Deliver the delayed frames after the link is restored."""
        stuck, self._stuck = self._stuck, []
        for arrive in stuck:
            self._loop.call_later(self._server.latency(), arrive)

    def end(self, *, politely: bool = False) -> None:
        """Close the connection from the broker side. Frames in transit are lost.

        The client sees the end at once or, with a broken link, after the link is restored.
        """
        broken = ConnectionResetError(104, "Connection reset by peer")
        if self._server.reachable:
            self._close(None if politely else broken)
        elif self._state is _State.OPEN:
            self._state = _State.CUT
            self._drop()
            self._stuck.append(lambda: self._close(broken))

    # --- arrivals --------------------------------------------------------------------------------

    def _arrive(self) -> None:
        if self._state is not _State.OPEN:
            return
        if not self._server.reachable:
            self._stuck.append(self._arrive)
            return
        self._inbox.append(self._coming.popleft())
        self.serve()

    def _deliver(self) -> None:
        if self._state is not _State.OPEN:
            return
        if not self._server.reachable:
            self._stuck.append(self._deliver)
            return
        data = memoryview(self._going.popleft())
        while data and self._state is _State.OPEN:
            room = self._connection.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._connection.buffer_updated(count)

    def _next(self) -> None:
        self._current = None
        self.serve()

    def _idle(self) -> bool:
        """Return whether the broker can handle the next request of this connection."""
        is_open = self._state is _State.OPEN and self._server.running
        return is_open and self._current is None

    def _close(self, error: Exception | None) -> None:
        if self._state is not _State.OVER:
            self._state = _State.OVER
            self._drop()
            self._loop.call_soon(self._connection.connection_lost, error)

    def _drop(self) -> None:
        """Drop the current request, and call the callback that `on_end` has set."""
        self._current = None
        if self._give_up is not None:
            self._give_up()
            self._give_up = None
