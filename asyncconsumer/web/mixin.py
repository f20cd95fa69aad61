"""What a consumer and an app of handlers have for web apps: FastAPI, Starlette, aiohttp, any ASGI.

api = FastAPI(lifespan=app.lifespan)
api.mount("/kafka", app.asgi())
"""

import abc
import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import ConsumerError, brief
from asyncconsumer.web.pages import Asgi, asgi
from asyncconsumer.web.status import Status

_log: Final = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0  # seconds, as workers wait that are started again

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""What FastAPI and Starlette take: given the web app, a block around all that it does."""


class WebMixin(abc.ABC):
    """Lives as long as a web app does: opened before its first request, drained after the last.

    While Kafka cannot be reached the web app starts without it: it is opened in the background once
    that is possible, and until then ``/live`` answers 200 and ``/ready`` 503. With `require_kafka`
    the web app does not start then, as it does not with wrong options or credentials. What dies
    later is logged and told by ``/live``, and the web app goes on: whoever looks there decides.
    """

    _scope: Scope  # of its block
    _life: "_Lifespan | None" = None

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
    def status(self) -> Status:
        """How it stands, as plain values: this is what the pages show."""

    @asynccontextmanager
    async def lifespan(
        self, web_app: object = None, *, require_kafka: bool = False
    ) -> AsyncIterator[None]:
        """For ``FastAPI(lifespan=...)`` and ``Starlette(lifespan=...)``.

        With an option: ``FastAPI(lifespan=partial(app.lifespan, require_kafka=True))``.
        """
        life = self._life = _Lifespan(self, patient=not require_kafka)
        async with Scope("its web app") as scope:
            task = scope.start(life.live(), type(self).__name__)
            await life.begun
            try:
                yield
            finally:
                life.over.set()
                await asyncio.wait({task})
        if life.failed_at_the_end is not None:
            raise life.failed_at_the_end

    def lifespan_with(self, existing: Lifespan, *, require_kafka: bool = False) -> Lifespan:
        """The same within a lifespan that there is already: handlers may use what that opens."""

        @asynccontextmanager
        async def both(web_app: object) -> AsyncIterator[Any]:
            ours = self.lifespan(web_app, require_kafka=require_kafka)
            async with existing(web_app) as state, ours:
                yield state

        return both

    async def cleanup_ctx(
        self, web_app: object = None, *, require_kafka: bool = False
    ) -> AsyncIterator[None]:
        """For aiohttp: ``web_app.cleanup_ctx.append(app.cleanup_ctx)``."""
        async with self.lifespan(web_app, require_kafka=require_kafka):
            yield

    async def current(self) -> Self:
        """Itself, while it is open: for endpoints that need it, as ``Depends(app.current)``."""
        self._scope.check_open()
        return self

    def asgi(self) -> Asgi:
        """Pages to mount: ``/live``, ``/ready``, ``/lag``, ``/status`` and ``/metrics``."""
        return asgi(self.look)

    def look(self) -> Mapping[str, Status]:
        """How it stands, for pages; also when it has died."""
        status, life = self.status(), self._life
        if life is None or life.error is None:
            return {"": status}
        why, starting = brief(life.error), life.starting
        state = "starting" if starting else status.state
        return {"": replace(status, live=starting, ready=False, state=state, reason=why)}


class _Lifespan:
    """A block in a task of its own.

    What fails inside cancels the task that is in the block. That must not be the web server's: it
    would take the failure for its own end.
    """

    def __init__(self, block: AbstractAsyncContextManager[object], *, patient: bool) -> None:
        self._block = block
        self._patient = patient
        self._delays = backoff(_FIRST_WAIT, _LONGEST_WAIT, Random())  # noqa: S311 - jitter
        self._opened = self._failed_for_good = False
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.error: Exception | None = None  # why it is not open
        self.failed_at_the_end: Exception | None = None

    @property
    def starting(self) -> bool:
        """Whether it was not open yet, and is tried again."""
        tried = self.begun.done() and not self.over.is_set()
        return tried and not self._opened and not self._failed_for_good

    async def live(self) -> None:
        while not self.over.is_set():
            try:
                async with self._block:
                    self._opened, self.error = True, None
                    self._begin()
                    await self.over.wait()
            except Exception as error:  # noqa: BLE001 - it is raised, or told, where it matters
                self.error = error
                if not self._may_try_again(error):
                    self._failed(error)
                    return
                self._begin()
                await self._wait(error)

    def _begin(self) -> None:
        """The web app may start."""
        if not self.begun.done():
            self.begun.set_result(None)

    def _may_try_again(self, error: Exception) -> bool:
        later = isinstance(error, ConsumerError) and error.retriable
        return later and self._patient and not self._opened and not self.over.is_set()

    async def _wait(self, error: Exception) -> None:
        wait = next(self._delays)
        what = type(self._block).__name__
        _log.warning("%s is not started yet, next try in %.1f s: %s", what, wait, error)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self.over.wait()

    def _failed(self, error: Exception) -> None:
        self._failed_for_good = True
        if not self.begun.done():
            self.begun.set_exception(error)
        elif self.over.is_set():
            self.failed_at_the_end = error
        else:
            what = type(self._block).__name__
            _log.error("%s has ended, and the web app goes on without it: %s", what, error)
