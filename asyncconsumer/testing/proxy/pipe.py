"""One direction of one connection: bytes are read, suffer the faults, are handed on."""

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
from asyncconsumer.testing.proxy.socket_reader import Intake

WINDOW = 4 * 2**20
"""A pipe stops reading when it holds so many bytes; then the sender's own TCP fills up and blocks.

It must be larger than what a hook sees of a frame (``frames.HEAD``).
"""


class Ended(Exception):
    """The whole connection is over, and how to close it."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


class ReceiverGone(Exception):
    """Nobody takes the bytes any more."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    what: bytes | Ending
    at: float
    luck: float

    def due(self, faults: Faults) -> float:
        """When it reaches the other side."""
        return self.at + faults.latency(self.luck)


class Pipe:
    """Reads as fast as the window allows, delivers as the faults want, keeps the order."""

    def __init__(
        self, line: NetworkDirection, connection: int, source: socket.socket, sink: socket.socket
    ) -> None:
        self.held = 0  # bytes read and neither handed on nor dropped
        self.finished = asyncio.Event()  # the sender's FIN was handed on
        self._line = line
        self._connection = connection
        self._intake = Intake(source, self.arrive)
        self._sink = sink
        self._arrivals: deque[_Arrival] = deque()
        self._readable = asyncio.Event()
        self._frames = FrameFinder()
        self._carried = 0
        self._last_piece = (0.0, 0)  # when it was handed on, and its size
        self._truncation: tuple[Truncation | None, int] = (None, 0)  # and where it falls

    def start(self) -> None:
        """Begin to read."""
        self._intake.resume()

    def stop(self) -> None:
        """Read no more; to be called before the socket is closed."""
        self._intake.pause()

    def arrive(self, what: bytes | Ending) -> None:
        """Let bytes, or the end of their sender, start on their way."""
        now = asyncio.get_running_loop().time()
        self._arrivals.append(_Arrival(what, now, self._line.luck()))
        self._readable.set()
        if isinstance(what, bytes):
            self._hold(len(what))

    async def deliver(self) -> NoReturn:
        """Hand on what arrived, as the faults allow. Goes on after a FIN: a RST may follow it."""
        while True:
            await self._readable.wait()
            arrival = self._arrivals[0]
            await self._until(arrival.due)
            self._arrivals.popleft()
            if not self._arrivals:
                self._readable.clear()
            if isinstance(arrival.what, bytes):
                await self._pass(arrival.what)
            elif arrival.what is Ending.RST:
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
        """Wait for a moment of the loop's clock, and out of any black hole; give the faults then.

        The moment follows from the faults, so it is asked for again whenever they change.
        """
        loop = asyncio.get_running_loop()
        while True:
            faults = self._line.faults
            if faults.black_hole:
                await self._line.changed.wait()
            elif (left := due(faults) - loop.time()) > 0:
                await self._line.changed.wait(left)
            else:
                return faults

    def _next_piece_due(self, faults: Faults) -> float:
        at, size = self._last_piece
        return at + faults.gap(size)

    def _allowed(self, faults: Faults) -> int:
        """How many bytes may still pass before a truncation, counted from when it was first met."""
        if faults.truncation is None:
            return CHUNK
        if faults.truncation is not self._truncation[0]:
            self._truncation = (faults.truncation, self._carried + faults.truncation.after)
        return self._truncation[1] - self._carried

    def _hold(self, more: int) -> None:
        was_full, self.held = self.held >= WINDOW, self.held + more
        if self.held >= WINDOW:
            self._intake.pause()
        elif was_full:
            self._intake.resume()
        self._line.progress.spread()


async def _send(sink: socket.socket, data: memoryview) -> None:
    try:
        await asyncio.get_running_loop().sock_sendall(sink, data)
    except OSError as error:
        raise ReceiverGone from error
    # a local socket that is closed has answered by now; if its FIN was read before, nothing else
    # would notice until the next send
    if sink.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise ReceiverGone


def _half_close(sink: socket.socket) -> None:
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError as error:
        raise ReceiverGone from error
