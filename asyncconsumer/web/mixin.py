"""The web app support of consumers and apps, for FastAPI, Starlette, aiohttp and other ASGI apps.

api = FastAPI(lifespan=app.lifespan)
api.mount("/kafka", app.asgi())
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, Final, Literal, Self

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.scope import Scope
from asyncconsumer.aio.wait import wait_set
from asyncconsumer.errors import ConfigError, ConsumerError, brief
from asyncconsumer.web.measured import Measured
from asyncconsumer.web.pages import Asgi, Readiness, asgi
from asyncconsumer.web.status import Status

_log: Final = logging.getLogger(__name__)
_MIN_DELAY, _MAX_DELAY = 0.5, 30.0  # seconds, as for restarts of workers

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""A lifespan of FastAPI or Starlette, which returns a context manager for a web app."""

StartMode = Literal["lazy", "connected"]
"""Whether a web app starts while Kafka is unavailable, or after this object has connected."""


class WebMixin(AsyncResource, Measured):
    """A mixin for consumers and Kafka apps that are opened and closed with a web app.

    The consumer or Kafka app is opened before the first request and closed after the last one.

    With ``start="lazy"``, the default, the web app starts also while Kafka is unavailable, and
    opening is retried in the background. Until it succeeds, ``/live`` returns 200, and ``/started``
    and ``/ready`` return 503 with the reason. The lifespan of a Kafka app is entered again for each
    attempt.

    With ``start="connected"``, the web app does not start while Kafka is unavailable. An error of
    the first attempt that is not retriable, such as wrong credentials, always prevents the start. A
    later failure is logged, ``/live`` returns 503, and the web app continues.
    """

    _scope: Scope  # open while the consumer is open
    _web_lifespan: "_RetryingLifespan | None" = None

    @asynccontextmanager
    async def lifespan(
        self, web_app: object = None, *, start: StartMode = "lazy"
    ) -> AsyncIterator[None]:
        """Return an async context manager that opens this object for a web app's lifetime.

        Pass it as ``FastAPI(lifespan=app.lifespan)`` or ``Starlette(lifespan=app.lifespan)``.

        To pass an option: ``FastAPI(lifespan=partial(app.lifespan, start="connected"))``.
        """
        if start not in ("lazy", "connected"):
            raise ConfigError(f"`start` must be 'lazy' or 'connected', got {start!r}")
        lifespan = self._web_lifespan = _RetryingLifespan(self, retry=start == "lazy")
        async with Scope("web app") as scope:
            task = scope.start(lifespan.run(), type(self).__name__)
            await lifespan.started
            try:
                yield
            finally:
                lifespan.end(task)
                await asyncio.wait({task})
        if lifespan.closing_error is not None:
            raise lifespan.closing_error

    def lifespan_with(self, existing: Lifespan, *, start: StartMode = "lazy") -> Lifespan:
        """Return a lifespan that enters `existing` first, so that handlers can use its state."""

        @asynccontextmanager
        async def nested(web_app: object) -> AsyncIterator[Any]:
            inner = self.lifespan(web_app, start=start)
            async with existing(web_app) as state, inner:
                yield state

        return nested

    async def cleanup_ctx(
        self, web_app: object = None, *, start: StartMode = "lazy"
    ) -> AsyncIterator[None]:
        """Open this object when an aiohttp app starts, and close it when that app is cleaned up.

        Use it as ``web_app.cleanup_ctx.append(app.cleanup_ctx)``.
        """
        async with self.lifespan(web_app, start=start):
            yield

    async def current(self) -> Self:
        """Return this object, for endpoints with ``Depends(app.current)``.

        Raise ClosedError if it is not open.
        """
        self._scope.check_open()
        return self

    def asgi(
        self,
        *,
        dashboard: bool = True,
        http_hosts: Iterable[str] = (),
        ready: Literal["work", "traffic"] = "work",
    ) -> Asgi:
        """Return an ASGI app with the health pages and ``/metrics``.

        The health pages are ``/started``, ``/live``, ``/ready``, ``/lag`` and ``/status``.
        ``/ready`` returns 200 while records are processed. With ``ready="traffic"``, it returns 200
        while the process can take requests, also while Kafka is unavailable.

        ``/`` is the dashboard of the cluster. Browsers may reach it as localhost, and by the names
        in `http_hosts`. The environment variable ``ASYNCCONSUMER_DASHBOARD_TOKEN`` permits
        changes by users who know the token.
        """
        if ready not in ("work", "traffic"):
            raise ConfigError(f"`ready` must be 'work' or 'traffic', got {ready!r}")
        site = self._dashboard(http_hosts) if dashboard else None
        return asgi(self.status_by_worker, site, Readiness(ready))

    def _dashboard(self, http_hosts: Iterable[str]) -> Asgi | None:
        """Return the dashboard, or None if this object has none."""
        return None

    def status_by_worker(self) -> Mapping[str, Status]:
        """Return the status for health pages, even while opening is retried and after a failure.

        The only key is ``""``, because this is one process. A supervisor of workers has one key for
        each.
        """
        status, lifespan = self.status(), self._web_lifespan
        if lifespan is None or lifespan.error is None:
            return {"": status}
        reason, starting = brief(lifespan.error), lifespan.starting
        state = "starting" if starting else status.state
        started = status.started and not starting
        failed = replace(status, live=starting, ready=False, started=started)
        return {"": replace(failed, state=state, reason=reason)}


class _RetryingLifespan:
    """A context manager that enters and leaves another context manager in a separate task.

    If the consumer fails, the task that entered its context manager is cancelled. A cancelled task
    of the web server would stop the server, so a separate task is needed.
    """

    def __init__(self, block: AbstractAsyncContextManager[object], *, retry: bool) -> None:
        self._block = block
        self._retry = retry
        self._delays = backoff(_MIN_DELAY, _MAX_DELAY, Random())  # noqa: S311 - jitter
        self._opened = self._failed = False
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stop = asyncio.Event()
        self.error: Exception | None = None  # why the block is not open
        self.closing_error: Exception | None = None

    @property
    def starting(self) -> bool:
        """Whether opening is retried and has not succeeded yet."""
        running = self.started.done() and not self.stop.is_set()
        return running and not self._opened and not self._failed

    def end(self, task: asyncio.Task[None]) -> None:
        """Have `task`, which executes `run`, leave the other context manager.

        If that is not entered yet, cancel the attempt to enter it.
        """
        self.stop.set()
        if not self._opened:
            task.cancel()

    async def run(self) -> None:
        while not self.stop.is_set():
            try:
                async with self._block:
                    self._opened, self.error = True, None
                    self._let_start()
                    await self.stop.wait()
            except Exception as error:  # noqa: BLE001 - raised or logged by `_fail`
                self.error = error
                if not self._may_retry(error):
                    self._fail(error)
                    return
                self._let_start()
                await self._wait(error)

    def _let_start(self) -> None:
        """Complete the future that the web app waits for at its start."""
        if not self.started.done():
            self.started.set_result(None)

    def _may_retry(self, error: Exception) -> bool:
        retriable = isinstance(error, ConsumerError) and error.retriable
        return retriable and self._retry and not self._opened and not self.stop.is_set()

    async def _wait(self, error: Exception) -> None:
        delay = next(self._delays)
        name = type(self._block).__name__
        _log.warning("%s could not be opened, next try in %.1f s: %s", name, delay, error)
        await wait_set(self.stop, delay)

    def _fail(self, error: Exception) -> None:
        self._failed = True
        if not self.started.done():
            self.started.set_exception(error)
        elif self.stop.is_set():
            self.closing_error = error
        else:
            name = type(self._block).__name__
            _log.error("%s failed, and the web app continues without it: %s", name, error)
