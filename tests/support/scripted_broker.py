"""A broker whose responses a test writes, over a real socket."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.net.connect import open_connection
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.types import Address

VERSIONS = {1: (4, 11), 3: (4, 8), 17: (0, 1), 18: (0, 0), 36: (0, 1)}


class ReceivedRequest(NamedTuple):
    """A request as the broker sees it."""

    api: int
    version: int
    correlation: int
    body: bytes


class Line:
    """The broker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def asked(self) -> ReceivedRequest:
        """Return the next request."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        data = await self.reader.readexactly(size)
        api, version, correlation, length = struct.unpack_from(">hhih", data)
        return ReceivedRequest(api, version, correlation, data[10 + length :])

    def answer(self, request: ReceivedRequest | int, body: bytes) -> None:
        """Send a response to a request, or to a correlation id."""
        correlation = request if isinstance(request, int) else request.correlation
        self.send(struct.pack(">ii", len(body) + 4, correlation) + body)

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    async def greet(self, versions: Mapping[int, tuple[int, int]] = VERSIONS) -> None:
        """Answer ApiVersions."""
        self.answer(await self.asked(), api_versions(versions))

    async def until_closed(self) -> None:
        """Wait until the client closes the connection."""
        while await self.reader.read(65536):
            pass


Play: TypeAlias = Callable[[Line], Awaitable[Any]]


def api_versions(versions: Mapping[int, tuple[int, int]] = VERSIONS) -> bytes:
    rows = b"".join(struct.pack(">hhh", api, *spoken) for api, spoken in versions.items())
    return struct.pack(">hi", 0, len(versions)) + rows


@asynccontextmanager
async def broker(play: Play, **tls: Any) -> AsyncIterator[Address]:
    """Yield the address of a server. `play` serves each connection, which is closed at its end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await play(Line(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection
        finally:
            writer.transport.abort()

    async with asyncio.TaskGroup() as group:
        tasks = []

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.append(group.create_task(serve(reader, writer)))

        server = await asyncio.start_server(accept, "127.0.0.1", 0, **tls)
        try:
            yield Address(*server.sockets[0].getsockname())
        finally:
            server.close()
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def connected(play: Play, **options: Any) -> AsyncIterator[BrokerConnection]:
    """Yield a connection to a broker that answers ApiVersions and then calls `play`."""

    async def greet_and_play(line: Line) -> None:
        await line.greet()
        await play(line)

    async with broker(greet_and_play) as address, asyncio.timeout(20):
        config = ConnectionConfig(bootstrap_servers=str(address), **options)
        connection = await open_connection(address, config)
        try:
            yield connection
        finally:
            connection.close()
            await connection.wait_closed()
