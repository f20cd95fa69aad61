"""The proxy itself: it admits connections, and offers the faults as verbs."""

import asyncio
import enum
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from types import TracebackType
from typing import Self

from asyncconsumer.aio.start_task import start_task
from asyncconsumer.errors import ClosedError, ConfigError
from asyncconsumer.testing.proxy.connection import Connection
from asyncconsumer.testing.proxy.direction import NetworkDirection, News
from asyncconsumer.testing.proxy.faults import Direction, Ending, Faults, FrameHook, Truncation
from asyncconsumer.testing.proxy.listener import Door
from asyncconsumer.testing.proxy.pipe import Ended


class _State(enum.Enum):
    NEW = "not open yet: enter its `async with` block first"
    OPEN = "open"
    CLOSED = "closed: its `async with` block is over; make a new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a proxy has seen so far."""

    accepted: int  # connections taken from the listener, the refused ones included
    refused: int  # reset at once: by refuse(), or because upstream could not be reached
    live: int
    bytes_up: int  # handed on, client to server
    bytes_down: int  # handed on, server to client
    held: int  # read by the proxy and not yet handed on


class TcpProxy:
    """Stands before a TCP server and makes the faults of a network between it and its clients.

    ``listener`` is a socket that already listens. The proxy works on a duplicate, so the caller may
    keep it and give it to the next proxy: the port stays the same. It becomes non-blocking.
    Without one the proxy listens on a free port of 127.0.0.1. A name as ``upstream_host`` is
    resolved to IPv4; IPv6 takes an address. ``seed`` makes the jitter of ``delay`` repeatable.

    The verbs take effect at once, on live and on later connections, and stay until ``heal``.
    Those of different kinds combine; a second one of a kind replaces the first.
    """

    def __init__(
        self,
        upstream_host: str,
        upstream_port: int,
        *,
        listener: socket.socket | None = None,
        seed: int = 0,
    ) -> None:
        if not upstream_host:
            raise ConfigError("upstream_host must be a host name or an address, got ''")
        if not 0 < upstream_port < 2**16:
            raise ConfigError(f"upstream_port must be from 1 to 65535, got {upstream_port}")
        self._upstream = upstream_host, upstream_port
        self._listener = listener
        self._state = _State.NEW
        self._progress = News()
        randomness = Random(seed)  # noqa: S311 - jitter, not a secret
        self._up = NetworkDirection(randomness, self._progress)
        self._down = NetworkDirection(randomness, self._progress)
        self._connections: dict[int, Connection] = {}
        self._scope = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        if self._state is not _State.NEW:
            raise ClosedError("a proxy is used once; make a new one")
        self._door = Door(self._listener, self._progress)
        await self._scope.__aenter__()
        self._serving = start_task(self._scope, self._serve())
        self._state = _State.OPEN
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._state = _State.CLOSED
        self._progress.spread()
        self._serving.cancel()
        try:
            # an error of the block is not told to the scope: it would wrap it into a group
            await self._scope.__aexit__(None, None, None)
        finally:
            self._door.close()

    @property
    def host(self) -> str:
        """The address it listens on."""
        return self._once_open().host

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._once_open().port

    @property
    def address(self) -> str:
        """Host and port as clients take them, like ``127.0.0.1:12345``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The live ones, oldest first."""
        return tuple(each for each in self._connections.values() if each.live)

    def statistics(self) -> Statistics:
        """The counts now; also after the end."""
        door = self._once_open()
        return Statistics(
            accepted=door.accepted,
            refused=door.refused,
            live=len(self.connections),
            bytes_up=self._up.carried,
            bytes_down=self._down.carried,
            held=sum(each.held for each in self._connections.values()),
        )

    async def wait_for_connections(self, count: int) -> None:
        """Wait until at least so many connections are live."""
        await self.wait_until(lambda now: now.live >= count)

    async def wait_until(self, condition: Callable[[Statistics], bool]) -> None:
        """Wait until the statistics are as wanted, like ``lambda now: now.held > 0``."""
        self._must_be_open()
        while not condition(self.statistics()):
            await self._progress.wait()
            self._must_be_open()

    def cut(self) -> None:
        """Close all live connections in order: both sides see EOF."""
        self._must_be_open()
        for connection in self.connections:
            connection.cut()

    def reset(self) -> None:
        """Break off all live connections: both sides see ECONNRESET."""
        self._must_be_open()
        for connection in self.connections:
            connection.reset()

    def refuse(self) -> None:
        """Reset new connections right after they are made. Live ones go on.

        Clients see ECONNRESET on their first read and not ECONNREFUSED: the port stays taken, so
        that nobody else gets it and a kept listener stays usable.
        """
        self._must_be_open()
        self._door.refusing = True

    def black_hole(self, *, direction: Direction = "both") -> None:
        """Lose all packets. Connections are accepted, and nothing is heard of them.

        As TCP would send again what was lost, bytes are held and arrive after ``heal``, in order;
        so do FIN and RST: the other side does not learn that a peer went away. A connection that
        is made while ``up`` is black reaches upstream only after ``heal``. At most 4 MiB of each
        connection are held; then reading stops, and the sender blocks like on a full TCP window.
        """
        self._alter(direction, lambda faults: replace(faults, black_hole=True))

    def delay(self, seconds: float, jitter: float = 0.0, *, direction: Direction = "both") -> None:
        """Let bytes arrive after ``seconds``, and up to ``jitter`` more. The order is kept."""
        self._alter(direction, lambda faults: replace(faults, delay=seconds, jitter=jitter))

    def throttle(self, bytes_per_second: float, *, direction: Direction = "both") -> None:
        """Let so many bytes pass in a second, for each connection and direction."""
        self._alter(direction, lambda faults: replace(faults, bytes_per_second=bytes_per_second))

    def slice(self, max_bytes: int, *, pause: float = 0.001, direction: Direction = "both") -> None:
        """Hand bytes on in pieces not larger than this, ``pause`` seconds apart.

        A receiver that is slower than the pause may still read several pieces at once.
        """
        self._alter(direction, lambda faults: replace(faults, max_bytes=max_bytes, pause=pause))

    def truncate(self, *, after: int, direction: Direction = "down", reset: bool = False) -> None:
        """Let ``after`` more bytes of each connection, live or later, pass; then cut it.

        With ``after=0`` it is cut when the first byte comes. With ``reset`` it ends with RST,
        which, as always in TCP, may overtake bytes that the receiver's kernel has not taken yet.
        """
        truncation = Truncation(after, Ending.RST if reset else Ending.FIN)
        self._alter(direction, lambda faults: replace(faults, truncation=truncation))

    def on_frame(self, direction: Direction, callback: FrameHook) -> None:
        """Ask ``callback`` about each frame before it is handed on; one callback a direction.

        A frame already on its way passes unasked. While there is a callback, a frame is handed on
        once it is complete (or its first MiB is). Bytes that are no frames pass unasked too. The
        callback may use the verbs; what it raises ends the proxy, and comes out of its block.
        """
        self._alter(direction, lambda faults: replace(faults, on_frame=callback))

    def heal(self) -> None:
        """Back to a perfect network: all faults and callbacks are gone, what was held goes on."""
        self._must_be_open()
        self._door.refusing = False
        self._alter("both", lambda _: Faults())

    def _alter(self, direction: Direction, change: Callable[[Faults], Faults]) -> None:
        self._must_be_open()
        lines = {"up": [self._up], "down": [self._down], "both": [self._up, self._down]}
        if direction not in lines:
            raise ConfigError(f"direction must be one of {', '.join(lines)}, got {direction!r}")
        for line in lines[direction]:
            line.alter(change)

    def _must_be_open(self) -> None:
        if self._state is not _State.OPEN:
            raise ClosedError(f"the proxy is {self._state.value}")

    def _once_open(self) -> Door:
        if self._state is _State.NEW:
            self._must_be_open()
        return self._door

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            async for client in self._door.clients():
                self._admit(client, group)

    def _admit(self, client: socket.socket, group: asyncio.TaskGroup) -> None:
        family = socket.AF_INET6 if ":" in self._upstream[0] else socket.AF_INET
        number = self._door.accepted - 1
        connection = Connection(number, client, socket.socket(family), self._up, self._down)

        def ended(_: asyncio.Task[None]) -> None:
            # a callback and not a `finally`: a task cancelled before it began runs none of those
            connection.close()
            del self._connections[number]
            self._progress.spread()

        self._connections[number] = connection
        start_task(group, connection.run(self._dial)).add_done_callback(ended)
        self._progress.spread()

    async def _dial(self, upstream: socket.socket) -> None:
        while self._up.faults.black_hole:
            await self._up.changed.wait()
        try:
            await asyncio.get_running_loop().sock_connect(upstream, self._upstream)
        except OSError:
            self._door.refused += 1
            raise Ended(Ending.RST) from None
