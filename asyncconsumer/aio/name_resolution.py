"""TCP connections to hosts by name. Names are resolved in separate daemon threads.

The event loop's default executor belongs to the application, and `asyncio.run` waits for its
threads. A slow name server would block both.
"""

import asyncio
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple

from asyncconsumer.aio.threads import DaemonThreads
from asyncconsumer.types import Address

_MAX_THREADS: Final = 8  # names resolved concurrently, in the whole process


class Endpoint(NamedTuple):
    """One IP address of a host. The port in `sockaddr` is not set."""

    family: int
    sockaddr: tuple[Any, ...]


class Resolver:
    """A resolver of host names. Concurrent requests for one name share the result.

    Any thread and event loop of the process may use it. Threads exist only while a request is in
    flight.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Discard all lookups in flight.

        A forked child process calls this, because the threads of the lookups run only in its
        parent.
        """
        self._lock = threading.Lock()
        self._in_flight: dict[str, Future[list[Endpoint]]] = {}
        self._threads: DaemonThreads | None = None

    def lookup(self, host: str) -> Future[list[Endpoint]]:
        """Return a future of the addresses of a host, or of the resolver's `OSError`."""
        with self._lock:
            if (pending := self._in_flight.get(host)) is not None:
                return pending
            if self._threads is None:
                self._threads = DaemonThreads(_MAX_THREADS, "resolve")
            asked = self._in_flight[host] = self._threads.submit(_endpoints, host)
        asked.add_done_callback(lambda _: self._answered(host))
        return asked

    def _answered(self, host: str) -> None:
        with self._lock:
            self._in_flight.pop(host, None)
            if not self._in_flight and self._threads is not None:
                self._threads.close(wait=False)
                self._threads = None


RESOLVER: Final = Resolver()
if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=RESOLVER.reset)


async def connect(
    protocol: Callable[[], asyncio.BaseProtocol],
    address: Address,
    tls: ssl.SSLContext | None,
) -> None:
    """Open a TCP connection to the first address of a host that accepts one.

    Use TLS if `tls` is set. `protocol` creates the protocol of the connection. If that fails, raise
    the `OSError` of the name resolution, of the addresses that were tried, or of TLS.
    """
    loop = asyncio.get_running_loop()
    sock = await _first_open(await resolve(address.host), address.port)
    name = address.host if tls is not None else None
    await loop.create_connection(protocol, sock=sock, ssl=tls, server_hostname=name)


async def resolve(host: str) -> list[Endpoint]:
    """Return the addresses of a host, in the system's order of preference."""
    if (literal := _literal(host)) is not None:
        return [literal]
    loop = asyncio.get_running_loop()
    answered = loop.create_future()

    def wake() -> None:
        if not answered.done():
            answered.set_result(None)

    def on_done(_: object) -> None:
        with suppress(RuntimeError):  # the loop may be closed already
            loop.call_soon_threadsafe(wake)

    lookup = RESOLVER.lookup(host)
    lookup.add_done_callback(on_done)
    await answered
    return lookup.result()


async def _first_open(endpoints: list[Endpoint], port: int) -> socket.socket:
    errors: list[OSError] = []
    for endpoint in endpoints:
        try:
            return await open_socket(endpoint, port)
        except OSError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    raise OSError("; ".join(map(str, errors)) or "the host has no address")


async def open_socket(endpoint: Endpoint, port: int) -> socket.socket:
    """Connect to the IP address of `endpoint` at `port`, and return the socket."""
    host, _, *scope = endpoint.sockaddr
    sock = socket.socket(endpoint.family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (host, port, *scope))
    except BaseException:
        sock.close()
        raise
    return sock


def _literal(host: str) -> Endpoint | None:
    """Return the endpoint of a literal IP address, or None for a name."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    if version == 4:
        return Endpoint(socket.AF_INET, (host, 0))
    # a scope, as in fe80::1%eth0, is resolved by the system
    return None if "%" in host else Endpoint(socket.AF_INET6, (host, 0, 0, 0))


def _endpoints(host: str) -> list[Endpoint]:
    results = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [Endpoint(family, sockaddr) for family, _, _, _, sockaddr in results]
