"""What a consumer and an app of handlers have for web apps: FastAPI, Starlette, aiohttp, any ASGI.

api = FastAPI(lifespan=app.lifespan)
api.mount("/kafka", app.asgi())
"""

import abc
import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from asyncconsumer.embedding.pages import Asgi, asgi
from asyncconsumer.embedding.standing import Standing
from asyncconsumer.errors import brief
from asyncconsumer.tasks.scope import Scope

_log: Final = logging.getLogger(__name__)

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""What FastAPI and Starlette take: given the web app, a block around all that it does."""


class Embedded(abc.ABC):
    """Lives as long as a web app does: opened before its first request, drained after the last.

    What cannot start keeps the web app from starting. What dies later is logged and told by
    ``/live``, and the web app goes on: whoever looks at that page decides.
    """

    _scope: Scope  # of its block
    _died_of: Exception | None = None

    @abc.abstractmethod
    async def __aenter__(self) -> Self: ...

    @abc.abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None: ...

    @abc.abstractmethod
    def standing(self) -> Standing:
        """How it stands, as plain values: this is what the pages show."""

    @asynccontextmanager
    async def lifespan(self, web_app: object = None) -> AsyncIterator[None]:
        """For ``FastAPI(lifespan=...)`` and ``Starlette(lifespan=...)``."""
        life, self._died_of = _Life(self), None
        async with Scope("its web app") as scope:
            task = scope.start(self._live(life), type(self).__name__)
            await life.opened
            try:
                yield
            finally:
                life.over.set()
                await asyncio.wait({task})
        if life.failed_at_the_end is not None:
            raise life.failed_at_the_end

    async def _live(self, life: "_Life") -> None:
        await life.live()
        self._died_of = life.error

    def lifespan_with(self, existing: Lifespan) -> Lifespan:
        """The same within a lifespan that there is already: handlers may use what that opens."""

        @asynccontextmanager
        async def both(web_app: object) -> AsyncIterator[Any]:
            async with existing(web_app) as state, self.lifespan(web_app):
                yield state

        return both

    async def cleanup_ctx(self, web_app: object = None) -> AsyncIterator[None]:
        """For aiohttp: ``web_app.cleanup_ctx.append(app.cleanup_ctx)``."""
        async with self.lifespan(web_app):
            yield

    async def current(self) -> Self:
        """Itself, while it is open: for endpoints that need it, as ``Depends(app.current)``."""
        self._scope.check_open()
        return self

    def asgi(self) -> Asgi:
        """Pages to mount: ``/live``, ``/ready``, ``/lag``, ``/status`` and ``/metrics``."""
        return asgi(self.look)

    def look(self) -> Mapping[str, Standing]:
        """How it stands, for pages; also when it has died."""
        standing = self.standing()
        if (error := self._died_of) is not None:
            standing = replace(standing, live=False, ready=False, reason=brief(error))
        return {"": standing}


class _Life:
    """A block in a task of its own.

    What fails inside cancels the task that is in the block. That must not be the web server's: it
    would take the failure for its own end.
    """

    def __init__(self, block: AbstractAsyncContextManager[object]) -> None:
        self._block = block
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.error: Exception | None = None
        self.failed_at_the_end: Exception | None = None

    async def live(self) -> None:
        try:
            async with self._block:
                self.opened.set_result(None)
                await self.over.wait()
        except Exception as error:  # noqa: BLE001 - it is raised, or told, where it matters
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.error = error
        if not self.opened.done():
            self.opened.set_exception(error)
        elif self.over.is_set():
            self.failed_at_the_end = error
        else:
            what = type(self._block).__name__
            _log.error("%s has ended, and the web app goes on without it: %s", what, error)
