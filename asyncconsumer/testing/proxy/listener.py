"""Where clients come in."""

import asyncio
import socket
from collections.abc import AsyncIterator

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.proxy.connection import close
from asyncconsumer.testing.proxy.direction import News
from asyncconsumer.testing.proxy.faults import Ending


class Door:
    """A listening socket that lets clients in, or resets them at once while it refuses.

    The socket stays open while it refuses. Closing it would free the port for others, and would
    change nothing if the caller keeps a duplicate: the kernel would go on accepting for that one.
    """

    def __init__(self, given: socket.socket | None, progress: News) -> None:
        self._listener = _duplicate(given) if given else socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0)
        self._knock = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._listener, self._knock.set)
        self._progress = progress
        self.host: str = self._listener.getsockname()[0]
        self.port: int = self._listener.getsockname()[1]
        self.refusing = False
        self.accepted = 0
        self.refused = 0

    async def clients(self) -> AsyncIterator[socket.socket]:
        """Those who are let in, for ever."""
        while True:
            # not loop.sock_accept(): one that is cancelled may lose a socket it has just accepted
            await self._knock.wait()
            self._knock.clear()
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue  # it knocked and went away
            self.accepted += 1
            if self.refusing:
                self.refused += 1
                close(client, Ending.RST)
                self._progress.spread()
            else:
                yield client

    def close(self) -> None:
        """Stop listening; a socket that the caller kept goes on."""
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()


def _duplicate(given: socket.socket) -> socket.socket:
    if given.fileno() < 0 or not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ConfigError(f"listener must be a socket that is bound and listens, got {given}")
    return given.dup()
