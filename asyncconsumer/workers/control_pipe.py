"""The control pipe between a worker and its supervisor: lines of JSON over a socket pair.

When one process dies, the other one reads the end of the stream, unless a child that the dead
process forked keeps the socket open.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final, Self

_MAX_LINE_BYTES: Final = 2**24
_MAX_UNSENT_BYTES: Final = 2**20


class ControlPipe:
    """One end of a control pipe. Sending never waits for the other end to read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """Open a control pipe on `end`, one socket of the pair."""
        return cls(*await asyncio.open_connection(sock=end, limit=_MAX_LINE_BYTES))

    def send(self, **message: Any) -> None:  # noqa: ANN401 - any JSON value
        """Send a message. Drop it if the other end is closed, or if 1 MiB is not sent yet."""
        transport = self._writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() < _MAX_UNSENT_BYTES:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages from the other end until it is closed."""
        with suppress(ConnectionError):
            async for line in self._reader:
                yield json.loads(line)

    async def close(self) -> None:
        """Close the pipe after all messages were sent."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def send_blocking(end: socket.socket, **message: Any) -> None:  # noqa: ANN401 - any JSON value
    """Send a message from a process without an event loop."""
    with suppress(ConnectionError):
        end.sendall(json.dumps(message).encode() + b"\n")
