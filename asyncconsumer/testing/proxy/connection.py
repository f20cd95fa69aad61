"""One client's way through the proxy: two sockets, two pipes, and how it all ends."""

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
    """A connection through the proxy. ``cut`` and ``reset`` end this one alone."""

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
        self._told = asyncio.Event()
        for side in (client, upstream):
            side.settimeout(0)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __repr__(self) -> str:
        return f"<Connection {self.number}, {'live' if self.live else self._ending.name}>"

    @property
    def live(self) -> bool:
        """Whether nobody has ended it yet."""
        return not self._told.is_set()

    @property
    def held(self) -> int:
        """Bytes that the proxy has read from either side and not handed on."""
        return self._up.held + self._down.held

    def cut(self) -> None:
        """End it in order: both sides see EOF."""
        self._end(Ending.FIN)

    def reset(self) -> None:
        """Break it off: both sides see ECONNRESET."""
        self._end(Ending.RST)

    async def run(self, dial: Callable[[socket.socket], Awaitable[None]]) -> None:
        """Carry bytes until both sides have finished, one is gone, or it is told to end."""
        try:
            async with asyncio.TaskGroup() as group:
                start_task(group, self._obey())
                start_task(group, self._carry(dial))
        except* Ended as ended:
            self._ending = Ending.RST if ended.subgroup(_is_reset) else Ending.FIN

    def close(self) -> None:
        """Close both sockets, as it ended."""
        self._told.set()
        self._up.stop()
        self._down.stop()
        for side in (self._client, self._upstream):
            close(side, self._ending)

    def _end(self, ending: Ending) -> None:
        if self.live:
            self._ending = ending
            self._told.set()

    async def _obey(self) -> None:
        await self._told.wait()
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
    """Close one socket so that its peer sees this ending."""
    with contextlib.suppress(OSError):
        if ending is Ending.RST:
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        else:
            side.shutdown(socket.SHUT_WR)
            _drain(side)
    side.close()


def _drain(side: socket.socket) -> None:
    # the kernel answers a close with RST, and not with FIN, while there are unread bytes
    for _ in range(_MOST_DRAINED // CHUNK):
        if not side.recv(CHUNK):
            return


async def _deliver(pipe: Pipe, back: Pipe) -> None:
    try:
        await pipe.deliver()
    except ReceiverGone:
        # its RST came from where these bytes go to: it travels, and may be held, the other way
        back.arrive(Ending.RST)
