"""Both ends of a proxied connection as plain sockets, so that a test sees EOF and RST."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field

import pytest
import uvloop

from asyncconsumer.testing.proxy import Statistics, TcpProxy

LOCALHOST = "127.0.0.1"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_both_loops(scenario: Callable[[], Coroutine[None, None, None]]) -> Callable[..., None]:
    """Make a test of a scenario: run it on asyncio's loop and on uvloop, within 30 seconds."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    @pytest.mark.parametrize("loop", LOOPS)
    def test(loop: str) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(bounded())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


@dataclass
class Side:
    """One end of a connection."""

    socket: socket.socket

    def __post_init__(self) -> None:
        self.socket.settimeout(0)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def receive(self, size: int) -> bytes:
        """Return exactly this number of bytes."""
        data = bytearray()
        while len(data) < size:
            more = await asyncio.get_running_loop().sock_recv(self.socket, size - len(data))
            assert more, f"EOF after {data!r}"
            data += more
        return bytes(data)

    async def receive_all(self) -> bytes:
        """Return all bytes up to EOF."""
        pieces = []
        while piece := await asyncio.get_running_loop().sock_recv(self.socket, 2**20):
            pieces.append(piece)
        return b"".join(pieces)

    def has_no_data(self) -> bool:
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        return False

    def finish(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def break_off(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@dataclass
class Network:
    """A proxy and a server whose connections a test accepts."""

    proxy: TcpProxy
    server: socket.socket
    sides: list[Side] = field(default_factory=list)

    async def connect_client(self) -> Side:
        client = self._side(socket.socket())
        address = self.proxy.host, self.proxy.port
        await asyncio.get_running_loop().sock_connect(client.socket, address)
        return client

    async def accept(self) -> Side:
        return self._side((await asyncio.get_running_loop().sock_accept(self.server))[0])

    async def connect(self) -> tuple[Side, Side]:
        """Return the client's and the server's side of a new connection."""
        return await self.connect_client(), await self.accept()

    def has_no_connection(self) -> bool:
        try:
            self._side(self.server.accept()[0])
        except BlockingIOError:
            return True
        return False

    def _side(self, end: socket.socket) -> Side:
        side = Side(end)
        self.sides.append(side)
        return side


@contextlib.asynccontextmanager
async def network() -> AsyncIterator[Network]:
    with socket.create_server((LOCALHOST, 0)) as server:
        server.settimeout(0)
        async with TcpProxy(LOCALHOST, server.getsockname()[1]) as proxy:
            network = Network(proxy, server)
            try:
                yield network
            finally:
                for side in network.sides:
                    side.close()


async def run_proxy() -> None:
    """Run the loop until the proxy has processed all bytes in its sockets.

    On the loopback, bytes are received when they are sent, so no time must pass.
    """
    for _ in range(50):
        await asyncio.sleep(0)


def taken(size: int) -> Callable[[Statistics], bool]:
    """Return the condition that the proxy has read `size` bytes from clients."""
    return lambda now: now.held + now.bytes_up == size


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
