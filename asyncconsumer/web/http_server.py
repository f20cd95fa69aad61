"""A minimal HTTP server for the health pages of processes without a web app."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.web.pages import Page, StatusSource, page

_TIMEOUT: Final = 5.0  # seconds to receive a request and to send its response
_MAX_HEAD_BYTES: Final = 2**14


@asynccontextmanager
async def serving(source: StatusSource, host: str, port: int) -> AsyncIterator[int]:
    """Return an async context manager that serves health pages. It yields the port."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_encode(_response(head, source)))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(respond, host, port, limit=_MAX_HEAD_BYTES)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"The server for health pages cannot listen on {host}:{port}: {error}"
        ) from error
    async with server:
        yield server.sockets[0].getsockname()[1]


def _response(head: bytes, source: StatusSource) -> Page:
    parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return Page(400, "text/plain", b"not an HTTP/1 request\n")
    method, path, _ = parts
    return page(method, path.partition("?")[0], source)


def _encode(response: Page) -> bytes:
    lines = (
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode("latin-1") + response.body
