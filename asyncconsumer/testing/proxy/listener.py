"""The listening socket of the proxy."""

import asyncio
import socket
from collections.abc import AsyncIterator

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.proxy.connection import close
from asyncconsumer.testing.proxy.direction import ChangeSignal
from asyncconsumer.testing.proxy.faults import Ending


class ProxyListener:
    """A listening socket that accepts clients, or resets them at once while it refuses.

    While the listener refuses clients, its socket stays open, because another process could take
    the port of a closed socket. Besides, the caller may have a duplicate of the socket, for which
    the kernel would still accept clients.
    """

    def __init__(self, listener: socket.socket | None, progress: ChangeSignal) -> None:
        self._listener = (
            _duplicate(listener) if listener else socket.create_server(("127.0.0.1", 0))
        )
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
        """Yield the sockets of accepted clients, forever."""
        while True:
            # not loop.sock_accept(): if cancelled, it may lose an accepted socket
            await self._knock.wait()
            self._knock.clear()
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue  # the client closed before the accept
            self.accepted += 1
            if self.refusing:
                self.refused += 1
                close(client, Ending.RST)
                self._progress.spread()
            else:
                yield client

    def close(self) -> None:
        """Stop listening. If the caller has a duplicate of the socket, the duplicate stays open."""
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()


def _duplicate(listener: socket.socket) -> socket.socket:
    if listener.fileno() < 0 or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ConfigError(f"listener must be a socket that is bound and listens, got {listener}")
    return listener.dup()
