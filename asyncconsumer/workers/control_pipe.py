"""What a worker and its supervisor tell each other: JSON, a line each, through a pair of sockets.

When one of them dies the other one sees the end of the stream, whatever it died of.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final, Self

_LONGEST: Final = 2**24
_MOST_UNSENT: Final = 2**20


class ControlPipe:
    """One end of it. Nothing here waits for the other end to listen."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def on(cls, end: socket.socket) -> Self:
        """The end that this process has."""
        return cls(*await asyncio.open_connection(sock=end, limit=_LONGEST))

    def tell(self, **what: Any) -> None:  # noqa: ANN401 - whatever JSON takes
        """Have it sent, unless the other end is gone, or has not listened for long."""
        transport = self._writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() < _MOST_UNSENT:
            self._writer.write(json.dumps(what).encode() + b"\n")

    async def heard(self) -> AsyncIterator[dict[str, Any]]:
        """What the other end tells, until it is gone."""
        with suppress(ConnectionError):
            async for line in self._reader:
                yield json.loads(line)

    async def close(self) -> None:
        """After what was told is sent."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def tell_at_once(end: socket.socket, **what: Any) -> None:  # noqa: ANN401 - whatever JSON takes
    """For those who have no event loop yet, and will have none."""
    with suppress(ConnectionError):
        end.sendall(json.dumps(what).encode() + b"\n")
