"""Web app support of consumers and apps, for FastAPI, Starlette, aiohttp and any ASGI.

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
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0  # seconds, as for restarts of workers

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""A lifespan of FastAPI or Starlette, which returns a context manager for a web app."""


class WebMixin(abc.ABC):
    """A mixin for objects that are opened and closed with a web app.

    They are opened before the first request and closed after the last one.

    While Kafka is unavailable, the web app starts without it. The object is opened in the
    background once that is possible. Until then ``/live`` answers 200 and ``/ready`` answers 503.

    With `require_kafka`, the web app does not start while Kafka is unavailable. An error at the
    first attempt that is not retriable, such as wrong credentials, always prevents the start. A
    later failure is logged and makes ``/live`` answer 503, and the web app continues.
    """

    _scope: Scope  # open while the block is
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
        """Return the status as plain values, as the pages show it."""

    @asynccontextmanager
    async def lifespan(
        self, web_app: object = None, *, require_kafka: bool = False
    ) -> AsyncIterator[None]:
        """Open and close with a web app: ``FastAPI(lifespan=...)``, ``Starlette(lifespan=...)``.

        To pass an option: ``FastAPI(lifespan=partial(app.lifespan, require_kafka=True))``.
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
        """Return a lifespan nested in an existing one, whose resources handlers may use."""

        @asynccontextmanager
        async def both(web_app: object) -> AsyncIterator[Any]:
            ours = self.lifespan(web_app, require_kafka=require_kafka)
            async with existing(web_app) as state, ours:
                yield state

        return both

    async def cleanup_ctx(
        self, web_app: object = None, *, require_kafka: bool = False
    ) -> AsyncIterator[None]:
        """Open and close with aiohttp: ``web_app.cleanup_ctx.append(app.cleanup_ctx)``."""
        async with self.lifespan(web_app, require_kafka=require_kafka):
            yield

    async def current(self) -> Self:
        """Return this object if it is open, for endpoints with ``Depends(app.current)``."""
        self._scope.check_open()
        return self

    def asgi(self) -> Asgi:
        """Return an ASGI app with ``/live``, ``/ready``, ``/lag``, ``/status`` and ``/metrics``."""
        return asgi(self.look)

    def look(self) -> Mapping[str, Status]:
        """Return the status for pages, also after a failure."""
        status, life = self.status(), self._life
        if life is None or life.error is None:
            return {"": status}
        why, starting = brief(life.error), life.starting
        state = "starting" if starting else status.state
        return {"": replace(status, live=starting, ready=False, state=state, reason=why)}


class _Lifespan:
    """A block that is opened in a separate task.

    A failure inside cancels the task in the block. That must not be a task of the web server, which
    would stop.
    """

    def __init__(self, block: AbstractAsyncContextManager[object], *, patient: bool) -> None:
        self._block = block
        self._patient = patient
        self._delays = backoff(_FIRST_WAIT, _LONGEST_WAIT, Random())  # noqa: S311 - jitter
        self._opened = self._failed_for_good = False
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.error: Exception | None = None  # why the block is not open
        self.failed_at_the_end: Exception | None = None

    @property
    def starting(self) -> bool:
        """Whether the block was never open and opening is retried."""
        tried = self.begun.done() and not self.over.is_set()
        return tried and not self._opened and not self._failed_for_good

    async def live(self) -> None:
        while not self.over.is_set():
            try:
                async with self._block:
                    self._opened, self.error = True, None
                    self._begin()
                    await self.over.wait()
            except Exception as error:  # noqa: BLE001 - raised or logged by `_failed`
                self.error = error
                if not self._may_try_again(error):
                    self._failed(error)
                    return
                self._begin()
                await self._wait(error)

    def _begin(self) -> None:
        """Let the web app start."""
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
