"""One connection between a client and a fake broker: bytes on their way, both ways, in order."""

import asyncio
import enum
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from asyncconsumer.net.connection import BrokerConnection

_HEADER: Final = Struct(">ihhih")  # size, api, version, correlation, length of the client id
_FRAME: Final = Struct(">ii")


class Asked(NamedTuple):
    """A request as it came in. Its body begins at `start`."""

    api: int
    version: int
    correlation: int
    start: int
    data: bytes


class Server(Protocol):
    """What a wire needs of the broker at its end."""

    reachable: bool  # or bytes stay on their way, in both directions

    def latency(self) -> float:
        """Seconds that bytes are on their way; drawn anew for each frame."""

    def handle(self, asked: Asked, wire: "FakeTransport") -> None:
        """Answer a request, now or later, by calling `wire.answer` once."""

    @property
    def running(self) -> bool:
        """Whether requests are handled."""

    def left(self, wire: "FakeTransport") -> None:
        """The client closed a wire."""


class _State(enum.Enum):
    OPEN = "both ends are there"
    CUT = "the broker's end is gone, and the client cannot know yet"
    OVER = "closed"


class FakeTransport(asyncio.Transport):
    """The transport of a real Connection. The other end handles one request after the other.

    Like a broker it does not look at a request before the one before is answered: a fetch that
    waits holds up what follows on its connection.
    """

    def __init__(self, connection: BrokerConnection, server: Server) -> None:
        super().__init__()
        self._connection = connection
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._coming: deque[bytes] = deque()  # requests on their way
        self._inbox: deque[bytes] = deque()
        self._going: deque[bytes] = deque()  # answers on their way
        self._stuck: list[Callable[[], None]] = []  # arrivals that a broken link holds up
        self._current: Asked | None = None
        self._give_up: Callable[[], None] | None = None
        self._state = _State.OPEN
        connection.connection_made(self)

    # --- what the client calls -------------------------------------------------------------------

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, says asyncio
        """Send a request on its way."""
        if self._state is not _State.OVER:
            self._coming.append(bytes(data))
            self._loop.call_later(self._server.latency(), self._arrive)

    def abort(self) -> None:
        """The client hangs up."""
        self._server.left(self)
        self._close(None)

    # --- what the broker calls -------------------------------------------------------------------

    def answer(self, body: bytes, *, pause: float = 0.0) -> None:
        """Send the answer to the request in hand, and look at the next one after a pause."""
        if self._state is not _State.OPEN:
            return
        asked, self._give_up = self._current, None
        assert asked is not None, "a second answer to one request"
        self._going.append(_FRAME.pack(len(body) + 4, asked.correlation) + body)
        self._loop.call_later(self._server.latency(), self._deliver)
        if pause:
            self._loop.call_later(pause, self._next)
        else:
            self._next()

    def on_end(self, give_up: Callable[[], None]) -> None:
        """Have this called if the connection ends before the request in hand is answered."""
        self._give_up = give_up

    def serve(self) -> None:
        """Handle what has arrived, as far as the broker runs and nothing is in hand."""
        while self._inbox and self._idle():
            data = self._inbox.popleft()
            _, api, version, correlation, named = _HEADER.unpack_from(data)
            asked = Asked(api, version, correlation, _HEADER.size + max(named, 0), data)
            self._current = asked
            self._server.handle(asked, self)

    def release(self) -> None:
        """The link is there again: what it held up arrives."""
        stuck, self._stuck = self._stuck, []
        for arrive in stuck:
            self._loop.call_later(self._server.latency(), arrive)

    def end(self, *, politely: bool = False) -> None:
        """End it from the broker's side; what is on its way is lost.

        The client learns of it at once or, if the link is broken, when it is there again.
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
        """Whether the broker would look at another request now."""
        there = self._state is _State.OPEN and self._server.running
        return there and self._current is None

    def _close(self, error: Exception | None) -> None:
        if self._state is not _State.OVER:
            self._state = _State.OVER
            self._drop()
            self._loop.call_soon(self._connection.connection_lost, error)

    def _drop(self) -> None:
        """Have the broker forget the request in hand."""
        self._current = None
        if self._give_up is not None:
            self._give_up()
            self._give_up = None
