"""One direction of a connection, which reads bytes, applies the faults and delivers the bytes."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.proxy.direction import NetworkDirection
from asyncconsumer.testing.proxy.faults import CHUNK, Ending, Faults, Frame, Truncation, Verdict
from asyncconsumer.testing.proxy.frames import FrameFinder, Piece
from asyncconsumer.testing.proxy.socket_reader import SocketReader

WINDOW = 4 * 2**20
"""The number of bytes at which a pipe stops reading. Then the TCP buffers of the sender fill up.

It must be larger than the part of a frame that a frame callback gets (``frames.HEAD``).
"""


class Ended(Exception):
    """An error that ends a connection. ``ending`` says whether to close it with FIN or RST."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


class ReceiverGone(Exception):
    """An error because the receiver of the bytes has closed its socket."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    data: bytes | Ending
    arrived_at: float
    luck: float

    def due(self, faults: Faults) -> float:
        """Return the loop time at which to deliver the bytes under these faults."""
        return self.arrived_at + faults.latency(self.luck)


class Pipe:
    """A pipe from one socket to another that applies faults and keeps the order of bytes.

    The pipe reads up to ``WINDOW`` bytes before they can be delivered.
    """

    def __init__(
        self, line: NetworkDirection, connection: int, source: socket.socket, sink: socket.socket
    ) -> None:
        self.held = 0  # bytes read and neither delivered nor dropped
        self.finished = asyncio.Event()  # the FIN of the sender was delivered
        self._line = line
        self._connection = connection
        self._reader = SocketReader(source, self.arrive)
        self._sink = sink
        self._arrivals: deque[_Arrival] = deque()
        self._readable = asyncio.Event()
        self._frames = FrameFinder()
        self._carried = 0
        self._last_piece = (0.0, 0)  # the time of the last delivery, and its size
        self._truncation: tuple[Truncation | None, int] = (None, 0)  # and the bytes at its end

    def start(self) -> None:
        """Start to read from the sender."""
        self._reader.resume()

    def stop(self) -> None:
        """Stop reading. Call this before the socket is closed."""
        self._reader.pause()

    def arrive(self, data: bytes | Ending) -> None:
        """Queue received bytes, or the end of the sender's stream."""
        now = asyncio.get_running_loop().time()
        self._arrivals.append(_Arrival(data, now, self._line.luck()))
        self._readable.set()
        if isinstance(data, bytes):
            self._hold(len(data))

    async def deliver(self) -> NoReturn:
        """Deliver queued bytes under the faults. Continue after FIN, because RST may follow."""
        while True:
            await self._readable.wait()
            arrival = self._arrivals[0]
            await self._until(arrival.due)
            self._arrivals.popleft()
            if not self._arrivals:
                self._readable.clear()
            if isinstance(arrival.data, bytes):
                await self._pass(arrival.data)
            elif arrival.data is Ending.RST:
                raise Ended(Ending.RST)
            else:
                await self._hand_on(self._frames.leftover())
                _half_close(self._sink)
                self.finished.set()

    async def _pass(self, data: bytes) -> None:
        self._frames.feed(data)
        while piece := self._frames.take(whole=self._line.faults.on_frame is not None):
            verdict = Verdict.DROP if piece.dropped else await self._judge(piece)
            if verdict is Verdict.PASS:
                await self._hand_on(piece.data)
            elif verdict is Verdict.DROP:
                self._frames.drop_rest()
                self._hold(-len(piece.data))
            else:
                raise Ended(Ending.FIN if verdict is Verdict.CUT else Ending.RST)

    async def _judge(self, piece: Piece) -> Verdict:
        while piece.body is not None and (hook := self._line.faults.on_frame) is not None:
            verdict = hook(Frame(self._connection, piece.index, piece.body))
            if not isinstance(verdict, Verdict):
                raise ConfigError(f"on_frame: the callback must return a Verdict, got {verdict!r}")
            if verdict is not Verdict.HOLD:
                return verdict
            while self._line.faults.on_frame is hook:
                await self._line.changed.wait()
        return Verdict.PASS

    async def _hand_on(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            faults = await self._until(self._next_piece_due)
            size = min(len(rest), faults.piece, self._allowed(faults))
            await _send(self._sink, rest[:size])
            rest = rest[size:]
            self._last_piece = asyncio.get_running_loop().time(), size
            self._carried += size
            self._line.carry(size)
            self._hold(-size)
            if faults.truncation is not None and not self._allowed(faults):
                raise Ended(faults.truncation.ending)

    async def _until(self, due: Callable[[Faults], float]) -> Faults:
        """Wait until the loop time that ``due`` returns, and until no black hole is active.

        ``due`` is called with the current faults, and again when they change. Return the current
        faults.
        """
        loop = asyncio.get_running_loop()
        while True:
            faults = self._line.faults
            if faults.black_hole:
                await self._line.changed.wait()
            elif (delay := due(faults) - loop.time()) > 0:
                await self._line.changed.wait(delay)
            else:
                return faults

    def _next_piece_due(self, faults: Faults) -> float:
        sent_at, size = self._last_piece
        return sent_at + faults.gap(size)

    def _allowed(self, faults: Faults) -> int:
        """Return how many bytes may be delivered before the truncation in ``faults``.

        Its bytes are counted from the first time that this pipe uses it. Without a truncation,
        return ``CHUNK``.
        """
        if faults.truncation is None:
            return CHUNK
        if faults.truncation is not self._truncation[0]:
            self._truncation = (faults.truncation, self._carried + faults.truncation.after)
        return self._truncation[1] - self._carried

    def _hold(self, more: int) -> None:
        was_full, self.held = self.held >= WINDOW, self.held + more
        if self.held >= WINDOW:
            self._reader.pause()
        elif was_full:
            self._reader.resume()
        self._line.progress.spread()


async def _send(sink: socket.socket, data: memoryview) -> None:
    try:
        await asyncio.get_running_loop().sock_sendall(sink, data)
    except OSError as error:
        raise ReceiverGone from error
    # if the receiver on this machine has closed its socket, its RST has arrived by now; without
    # this check, only the next send would fail
    if sink.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise ReceiverGone


def _half_close(sink: socket.socket) -> None:
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError as error:
        raise ReceiverGone from error
