"""A connection through the proxy, with two sockets and a pipe for each direction."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

from asyncconsumer.aio.start_task import start_task
from asyncconsumer.testing.proxy.direction import NetworkDirection
from asyncconsumer.testing.proxy.faults import CHUNK, Ending
from asyncconsumer.testing.proxy.pipe import Ended, Pipe, ReceiverGone

_NO_LINGER = struct.pack("ii", 1, 0)
_MOST_DRAINED = 2**26


class Connection:
    """A connection through the proxy.

    The methods ``cut`` and ``reset`` end only this connection.
    """

    def __init__(
        self,
        number: int,
        client: socket.socket,
        upstream: socket.socket,
        up: NetworkDirection,
        down: NetworkDirection,
    ) -> None:
        self.number = number
        self._client = client
        self._upstream = upstream
        self._up = Pipe(up, number, client, upstream)
        self._down = Pipe(down, number, upstream, client)
        self._ending = Ending.FIN
        self._ended = asyncio.Event()
        for side in (client, upstream):
            side.settimeout(0)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __repr__(self) -> str:
        return f"<Connection {self.number}, {'live' if self.live else self._ending.name}>"

    @property
    def live(self) -> bool:
        """Whether the connection is open."""
        return not self._ended.is_set()

    @property
    def held(self) -> int:
        """The number of bytes that the proxy has read and not delivered yet."""
        return self._up.held + self._down.held

    def cut(self) -> None:
        """Close the connection. Both sides see EOF."""
        self._end(Ending.FIN)

    def reset(self) -> None:
        """Reset the connection. Both sides see ECONNRESET."""
        self._end(Ending.RST)

    async def run(self, dial: Callable[[socket.socket], Awaitable[None]]) -> None:
        """Forward bytes until both sides have sent EOF, one side closes, or the test ends this.

        `dial` connects the socket to the server.
        """
        try:
            async with asyncio.TaskGroup() as group:
                start_task(group, self._obey())
                start_task(group, self._carry(dial))
        except* Ended as ended:
            self._ending = Ending.RST if ended.subgroup(_is_reset) else Ending.FIN

    def close(self) -> None:
        """Close both sockets with FIN or RST, depending on how the connection ended."""
        self._ended.set()
        self._up.stop()
        self._down.stop()
        for side in (self._client, self._upstream):
            close(side, self._ending)

    def _end(self, ending: Ending) -> None:
        if self.live:
            self._ending = ending
            self._ended.set()

    async def _obey(self) -> None:
        await self._ended.wait()
        raise Ended(self._ending)

    async def _carry(self, dial: Callable[[socket.socket], Awaitable[None]]) -> None:
        self._up.start()
        await dial(self._upstream)
        self._down.start()
        async with asyncio.TaskGroup() as group:
            start_task(group, _deliver(self._up, back=self._down))
            start_task(group, _deliver(self._down, back=self._up))
            await self._up.finished.wait()
            await self._down.finished.wait()
            raise Ended(Ending.FIN)


def _is_reset(error: Exception) -> bool:
    return isinstance(error, Ended) and error.ending is Ending.RST


def close(side: socket.socket, ending: Ending) -> None:
    """Close a socket so that its peer sees `ending`, which is FIN or RST."""
    with contextlib.suppress(OSError):
        if ending is Ending.RST:
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        else:
            side.shutdown(socket.SHUT_WR)
            _drain(side)
    side.close()


def _drain(side: socket.socket) -> None:
    # with unread bytes, the kernel sends RST and not FIN on close
    for _ in range(_MOST_DRAINED // CHUNK):
        if not side.recv(CHUNK):
            return


async def _deliver(pipe: Pipe, back: Pipe) -> None:
    try:
        await pipe.deliver()
    except ReceiverGone:
        # the RST came from the receiver of these bytes, so it belongs to the other direction
        back.arrive(Ending.RST)
