"""The TCP proxy and the methods that inject faults."""

import asyncio
import enum
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from random import Random

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.errors import ClosedError, ConfigError
from asyncconsumer.testing.proxy.connection import Connection
from asyncconsumer.testing.proxy.direction import ChangeSignal, NetworkDirection
from asyncconsumer.testing.proxy.faults import Direction, Ending, Faults, FrameHook, Truncation
from asyncconsumer.testing.proxy.listener import ProxyListener
from asyncconsumer.testing.proxy.pipe import Ended


class _State(enum.Enum):
    NEW = "not open yet: enter its `async with` block first"
    OPEN = "open"
    CLOSED = "closed: its `async with` block is over; make a new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The counts of connections and bytes of a proxy."""

    accepted: int  # accepted connections, including the refused ones
    refused: int  # reset at once: by refuse(), or because upstream was unreachable
    live: int
    bytes_up: int  # delivered, client to server
    bytes_down: int  # delivered, server to client
    held: int  # read by the proxy and not yet delivered


class TcpProxy(AsyncResource):
    """A proxy in front of a TCP server that injects network faults.

    ``upstream_host`` and ``upstream_port`` are those of the server. A host name is resolved to
    IPv4. For IPv6 pass an address. ``seed`` makes the jitter of ``delay`` repeatable.

    ``listener`` is a listening socket. It becomes non-blocking. The proxy uses a duplicate of it,
    so the caller can pass the same socket, with the same port, to the next proxy. Without
    ``listener``, the proxy listens on a free port of 127.0.0.1.

    Faults take effect at once, on open and on later connections, and stay until ``heal``. Different
    faults combine. A second fault of the same kind replaces the first.
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
        self._progress = ChangeSignal()
        randomness = Random(seed)  # noqa: S311 - jitter, not a secret
        self._up = NetworkDirection(randomness, self._progress)
        self._down = NetworkDirection(randomness, self._progress)
        self._connections: dict[int, Connection] = {}
        self._scope = asyncio.TaskGroup()

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._state is not _State.NEW:
            raise ClosedError("a proxy can be used only once: create a new one")
        self._proxy_listener = ProxyListener(self._listener, self._progress)
        stack.callback(self._proxy_listener.close)
        await self._scope.__aenter__()
        # the group gets no error of the block, because it would wrap it
        stack.push_async_callback(self._scope.__aexit__, None, None, None)
        self._serving = start_task(self._scope, self._serve())
        self._state = _State.OPEN

    async def _before_close(self, error: BaseException | None) -> None:
        self._state = _State.CLOSED
        self._progress.spread()
        self._serving.cancel()

    @property
    def host(self) -> str:
        """The address on which the proxy listens."""
        return self._once_open().host

    @property
    def port(self) -> int:
        """The port on which the proxy listens."""
        return self._once_open().port

    @property
    def address(self) -> str:
        """The host and port on which the proxy listens, such as ``127.0.0.1:12345``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The open connections, oldest first."""
        return tuple(each for each in self._connections.values() if each.live)

    def statistics(self) -> Statistics:
        """Return the current counts. This also works after the proxy is closed."""
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
        """Wait until at least `count` connections are open."""
        await self.wait_until(lambda now: now.live >= count)

    async def wait_until(self, condition: Callable[[Statistics], bool]) -> None:
        """Wait until a condition on the statistics is true, like ``lambda now: now.held > 0``."""
        self._must_be_open()
        while not condition(self.statistics()):
            await self._progress.wait()
            self._must_be_open()

    def cut(self) -> None:
        """Close all open connections. Both sides see EOF."""
        self._must_be_open()
        for connection in self.connections:
            connection.cut()

    def reset(self) -> None:
        """Reset all open connections. Both sides see ECONNRESET."""
        self._must_be_open()
        for connection in self.connections:
            connection.reset()

    def refuse(self) -> None:
        """Reset new connections right after the accept. Open ones stay open.

        Clients see ECONNRESET on their first read and not ECONNREFUSED, because the proxy keeps
        listening. So no other process can take the port.
        """
        self._must_be_open()
        self._proxy_listener.refusing = True

    def black_hole(self, *, direction: Direction = "both") -> None:
        """Drop all packets. Connections are accepted, and no byte is delivered.

        Because TCP retransmits lost packets, bytes are held and arrive after ``heal``, in order.
        FIN and RST are held as well. If the direction ``up`` drops packets, a new connection
        reaches the server only after ``heal``. The proxy holds at most 4 MiB of each connection
        and direction. Then it stops reading, and the sender blocks as with a full TCP window.
        """
        self._alter(direction, lambda faults: replace(faults, black_hole=True))

    def delay(self, seconds: float, jitter: float = 0.0, *, direction: Direction = "both") -> None:
        """Delay bytes by ``seconds`` plus a random time up to ``jitter``. Keep their order."""
        self._alter(direction, lambda faults: replace(faults, delay=seconds, jitter=jitter))

    def throttle(self, bytes_per_second: float, *, direction: Direction = "both") -> None:
        """Limit the bytes per second of each connection, separately for each direction."""
        self._alter(direction, lambda faults: replace(faults, bytes_per_second=bytes_per_second))

    def slice(self, max_bytes: int, *, pause: float = 0.001, direction: Direction = "both") -> None:
        """Deliver bytes in pieces of at most ``max_bytes``, ``pause`` seconds apart.

        A receiver that is slower than the pause may read several pieces at once.
        """
        self._alter(direction, lambda faults: replace(faults, max_bytes=max_bytes, pause=pause))

    def truncate(self, *, after: int, direction: Direction = "down", reset: bool = False) -> None:
        """End each open or later connection after ``after`` more bytes.

        With ``after=0`` the first byte ends it. With ``reset`` it ends with RST. As always in TCP,
        an RST may make the receiver lose bytes that it has not read yet.
        """
        truncation = Truncation(after, Ending.RST if reset else Ending.FIN)
        self._alter(direction, lambda faults: replace(faults, truncation=truncation))

    def on_frame(self, direction: Direction, callback: FrameHook) -> None:
        """Call ``callback`` for each frame before its delivery. It replaces an earlier callback.

        The callback is not called for a frame whose delivery has begun, nor for bytes that are not
        frames. With a callback, a frame is delivered only when it (or its first MiB) is complete.
        The callback may inject faults. If it raises an exception, the proxy ends, and its block
        raises the exception.
        """
        self._alter(direction, lambda faults: replace(faults, on_frame=callback))

    def heal(self) -> None:
        """Remove all faults and callbacks, and deliver the held bytes."""
        self._must_be_open()
        self._proxy_listener.refusing = False
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

    def _once_open(self) -> ProxyListener:
        if self._state is _State.NEW:
            self._must_be_open()
        return self._proxy_listener

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            async for client in self._proxy_listener.clients():
                self._admit(client, group)

    def _admit(self, client: socket.socket, group: asyncio.TaskGroup) -> None:
        family = socket.AF_INET6 if ":" in self._upstream[0] else socket.AF_INET
        number = self._proxy_listener.accepted - 1
        connection = Connection(number, client, socket.socket(family), self._up, self._down)

        def ended(_: asyncio.Task[None]) -> None:
            # a callback and not a `finally`: a task that is cancelled before its start runs none
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
            self._proxy_listener.refused += 1
            raise Ended(Ending.RST) from None
