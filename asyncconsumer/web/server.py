"""A web server for the health pages of processes that have no web app."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.wait import wait_until
from asyncconsumer.errors import ConfigError
from asyncconsumer.web.pages import Asgi

_GRACE_SECONDS = 5  # for responses in progress when the server stops


class _Server(uvicorn.Server):
    """A uvicorn server that does not handle signals, because the program does."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield


@asynccontextmanager
async def serving(
    app: Asgi, host: str, port: int, *, before_stop: Callable[[], None] | None = None
) -> AsyncIterator[int]:
    """Return an async context manager that serves an ASGI app. It yields the port.

    `before_stop` is called before the server stops. It has to end responses that otherwise last
    until their clients disconnect.
    """
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config)
    with listener:
        async with Scope("web server") as scope:
            task = scope.start(server.serve([listener]), "serve")
            await wait_until(lambda: server.started or task.done())
            try:
                yield listener.getsockname()[1]
            finally:
                if before_stop is not None:
                    before_stop()
                server.should_exit = True
                await asyncio.wait({task})


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raise ConfigError if the port is not available.

    The socket is not opened by uvicorn, because uvicorn exits if the port is not available.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
            listener.setblocking(False)  # noqa: FBT003 - the signature of socket
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        raise ConfigError(f"The web server cannot listen on {host}:{port}: {error}") from error
    return listener
