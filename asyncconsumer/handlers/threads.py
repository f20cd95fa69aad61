"""The threads for handlers that are not async."""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.threads import DaemonThreads
from asyncconsumer.aio.wait import wait_until

if TYPE_CHECKING:
    from concurrent.futures import Future

_SECONDS_TO_END: Final = 2.0
_POLL_SECONDS: Final = 0.01
_LEAST_SPARE: Final = 16


class HandlerThreads:
    """The threads of one handler: `count` threads for calls, and some spare ones.

    A thread cannot be cancelled. If its call is cancelled, the thread is abandoned with a log
    message and a spare thread replaces it. Otherwise a few hanging calls would block the handler.
    While all spare threads are used up, no call is started.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._spare = max(_LEAST_SPARE, count)
        self._pool = DaemonThreads(count + self._spare, name)
        self._working: set[Future[Any]] = set()
        self._given_up: set[Future[Any]] = set()  # still running, but no longer awaited
        self._log = RateLimitedLogger(logging.getLogger(__name__))
        self._log_full = RateLimitedLogger(logging.getLogger(__name__))

    async def room(self) -> None:
        """Wait until a thread is free, so that `run` starts at once."""
        if len(self._given_up) < self._spare:
            return
        self._log_full.warning(
            "handler %s: %d threads of cancelled calls still run; no call starts until one ends",
            self._name,
            len(self._given_up),
        )
        await wait_until(lambda: len(self._given_up) < self._spare, every=_POLL_SECONDS)

    async def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Call the function in a thread, and return its result.

        An awaitable result is awaited, because a plain decorator may hide an `async def`.
        """
        if named:
            function = partial(function, **named)
        returned = await self._called(function, *arguments)
        return await returned if inspect.isawaitable(returned) else returned

    async def _called(self, function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        loop = asyncio.get_running_loop()
        work = self._pool.submit(contextvars.copy_context().run, function, *arguments)
        self._working.add(work)
        work.add_done_callback(self._working.discard)
        try:
            return await asyncio.wrap_future(work, loop=loop)
        except asyncio.CancelledError:
            if work.running():
                self._given_up.add(work)
                work.add_done_callback(self._given_up.discard)
                self._log.warning(
                    "a call of handler %s was cancelled; its thread continues, and its result is "
                    "ignored",
                    self._name,
                )
            raise

    async def close(self) -> None:
        """Close the threads. Wait at most 2 seconds for running calls, because one may hang."""
        try:
            async with asyncio.timeout(_SECONDS_TO_END):
                # threads set no asyncio event
                await wait_until(lambda: not self._working, every=_POLL_SECONDS)
        except TimeoutError:
            count = len(self._working)
            self._log.warning(
                "handler %s was closed, but %d of its threads still run a call", self._name, count
            )
        self._pool.close(wait=not self._working)
