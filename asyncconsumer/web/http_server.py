"""A minimal HTTP server for the health pages of processes without a web app."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.web.pages import Look, Page, page

_SECONDS: Final = 5.0  # to receive a request and to send its response
_LONGEST: Final = 2**14


@asynccontextmanager
async def serving(look: Look, host: str, port: int) -> AsyncIterator[int]:
    """Serve the pages while the block lasts. Yield the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_encoded(_answer(head, look)))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=_LONGEST)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
    async with server:
        yield server.sockets[0].getsockname()[1]


def _answer(head: bytes, look: Look) -> Page:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return Page(400, "text/plain", b"this is no request of HTTP 1\n")
    method, path, _ = words
    return page(method, path.partition("?")[0], look)


def _encoded(made: Page) -> bytes:
    lines = (
        f"HTTP/1.1 {made.status} {HTTPStatus(made.status).phrase}",
        f"Content-Type: {made.content_type}",
        f"Content-Length: {len(made.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode("latin-1") + made.body
