"""Free ports that stay ours while a server on them is down."""

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
    """Reserves port numbers until `close`.

    Taken below the range from which the system numbers outgoing connections: a client that dials
    a dead server again and again would otherwise be given that very port, connect to itself and
    keep the server from coming back. The reservation against other test runs is a UDP socket
    bound to the same number: no file to clean up, and gone with the process.
    """

    def __init__(self) -> None:
        self._reservations: list[socket.socket] = []

    def take(self, wanted: int | None = None) -> int:
        """Reserve `wanted`, or any free port."""
        if wanted is not None:
            return self._take(wanted)
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
        """A listening socket on a free port, for proxies on one event loop after the other."""
        listener = socket.create_server((HOST, self.take()))
        self._reservations.append(listener)
        return listener

    def close(self) -> None:
        """Give all of them back."""
        for reservation in self._reservations:
            reservation.close()
        self._reservations.clear()


def _shuffled_range() -> Iterator[int]:
    """Every port that no outgoing connection is numbered with, in random order."""
    highest = 32_768
    if _EPHEMERAL_RANGE.exists():
        highest = int(_EPHEMERAL_RANGE.read_text().split()[0])
    ports = list(range(_LOWEST, max(highest, _LOWEST + 1_000)))
    random.shuffle(ports)
    return iter(ports)
