"""One connection between a client and a fake broker: bytes on their way, both ways, in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from asyncconsumer.net.connection import Connection

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

    def handle(self, asked: Asked, wire: "Wire") -> None:
        """Answer a request, now or later, by calling `wire.answer` once."""

    @property
    def running(self) -> bool:
        """Whether requests are handled."""

    def left(self, wire: "Wire") -> None:
        """The client closed a wire."""


class Wire(asyncio.Transport):
    """The transport of a real Connection. The other end handles one request after the other.

    Like a broker it does not look at a request before the one before is answered: a fetch that
    waits holds up what follows on its connection.
    """

    def __init__(self, connection: Connection, server: Server) -> None:
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
        self._over = False
        connection.connection_made(self)

    # --- what the client calls -------------------------------------------------------------------

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer, says asyncio
        """Send a request on its way."""
        if not self._over:
            self._coming.append(bytes(data))
            self._loop.call_later(self._server.latency(), self._arrive)

    def abort(self) -> None:
        """The client hangs up."""
        if not self._over:
            self._end()
            self._server.left(self)
            self._loop.call_soon(self._connection.connection_lost, None)

    # --- what the broker calls -------------------------------------------------------------------

    def answer(self, body: bytes, *, pause: float = 0.0) -> None:
        """Send the answer to the request in hand, and look at the next one after a pause."""
        if self._over:
            return
        asked, self._current, self._give_up = self._current, None, None
        assert asked is not None, "a second answer to one request"
        self._going.append(_FRAME.pack(len(body) + 4, asked.correlation) + body)
        self._loop.call_later(self._server.latency(), self._deliver)
        if pause:
            self._loop.call_later(pause, self.serve)
        else:
            self.serve()

    def on_end(self, give_up: Callable[[], None]) -> None:
        """Have this called if the connection ends before the request in hand is answered."""
        self._give_up = give_up

    def serve(self) -> None:
        """Handle what has arrived, as far as the broker runs and nothing is in hand."""
        while self._inbox and self._current is None and self._server.running and not self._over:
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

    def reset(self) -> None:
        """Break off: whatever is on its way is lost."""
        if not self._over:
            self._end()
            broken = ConnectionResetError(104, "Connection reset by peer")
            self._loop.call_soon(self._connection.connection_lost, broken)

    def hang_up(self) -> None:
        """Close from the broker's side, as one that stops in good order does."""
        if not self._over:
            self._end()
            self._loop.call_soon(self._connection.connection_lost, None)

    # --- arrivals --------------------------------------------------------------------------------

    def _arrive(self) -> None:
        if self._over:
            return
        if not self._server.reachable:
            self._stuck.append(self._arrive)
            return
        self._inbox.append(self._coming.popleft())
        self.serve()

    def _deliver(self) -> None:
        if self._over:
            return
        if not self._server.reachable:
            self._stuck.append(self._deliver)
            return
        data = memoryview(self._going.popleft())
        while data and not self._over:
            room = self._connection.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._connection.buffer_updated(count)

    def _end(self) -> None:
        self._over = True
        if self._give_up is not None:
            self._give_up()
