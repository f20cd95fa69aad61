"""Free ports that stay reserved while their server is stopped."""

import errno
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from asyncconsumer.testing.servers.errors import PortInUse, ServerError

HOST: Final = "127.0.0.1"
_LOWEST: Final = 10_000
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """A reservation of port numbers until `close`.

    The ports are below the range that the system uses for outgoing connections. Otherwise a client
    that reconnects to a dead server could get the server's port as its own, connect to itself and
    block the restart of the server. A UDP socket with the same number reserves a port against other
    test runs. Unlike a lock file, it ends with the process.
    """

    def __init__(self) -> None:
        self._reservations: list[socket.socket] = []

    def take(self, requested: int | None = None) -> int:
        """Reserve the port `requested`, or any free port if it is None. Return its number.

        Raise PortInUse if another process uses the requested port.
        """
        if requested is not None:
            return self._take(requested)
        for port in _shuffled_range():
            try:
                return self._take(port)
            except PortInUse:
                continue
        raise ServerError(f"no free port on {HOST}")

    def _take(self, port: int) -> int:
        if not 0 < port < 2**16:
            raise ServerError(f"port {port} does not exist: take one from 1 to 65535")
        reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            reservation.bind((HOST, port))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((HOST, port))
        except OSError as error:
            reservation.close()
            if error.errno != errno.EADDRINUSE:
                raise ServerError(f"port {port} cannot be used: {error.strerror}") from error
            raise PortInUse(
                f"port {port} on {HOST} is in use: stop what listens there, or ask for another port"
            ) from error
        self._reservations.append(reservation)
        return port

    def listen(self) -> socket.socket:
        """Return a listening socket on a free port, for several proxies one after the other."""
        listener = socket.create_server((HOST, self.take()))
        self._reservations.append(listener)
        return listener

    def close(self) -> None:
        """Release all reserved ports."""
        for reservation in self._reservations:
            reservation.close()
        self._reservations.clear()


def _shuffled_range() -> Iterator[int]:
    """Return the ports below the range for outgoing connections, in random order."""
    highest = 32_768
    if _EPHEMERAL_RANGE.exists():
        highest = int(_EPHEMERAL_RANGE.read_text().split()[0])
    ports = list(range(_LOWEST, max(highest, _LOWEST + 1_000)))
    random.shuffle(ports)
    return iter(ports)
