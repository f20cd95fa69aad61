"""Calls to a sink, in threads and with retries."""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Any, Final

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.errors import ConsumerError, SinkFailed
from asyncconsumer.spark.sinks.protocol import SinkThreads

_log: Final = logging.getLogger(__name__)
_MIN_DELAY, _MAX_DELAY = 0.1, 5.0  # seconds between retries


class Grace:
    """The time limit that all steps of closing a feeder share.

    The grace period starts with the first call of `end`.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds: Final = seconds
        self._end: float | None = None

    def end(self) -> float:
        """Return the time, by the loop's clock, at which the grace period ends.

        The first call starts the grace period.
        """
        if self._end is None:
            self._end = asyncio.get_running_loop().time() + self.seconds
        return self._end


class SinkCaller:
    """An object that calls the methods of one sink, and retries failed calls."""

    def __init__(self, name: str, *, threads: int, retries: int, randomness: Random) -> None:
        self.retried = 0  # number of retries
        self._name = name
        self._threads = SinkThreads(threads)
        self._retries = retries
        self._randomness = randomness

    async def call(self, action: str, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Call a method of the sink and return its result.

        Retry after errors, and finally raise `SinkFailed`.

        `action` names the call in messages.
        """
        delays = backoff(_MIN_DELAY, _MAX_DELAY, self._randomness)
        tries = 0
        while True:
            tries += 1
            try:
                return await self._threads.run(function, *arguments)
            except (Exception, asyncio.CancelledError) as error:
                if _is_cancelled(error):
                    raise
                final = isinstance(error, ConsumerError) and not error.retriable
                if final or tries > self._retries:
                    if isinstance(error, ConsumerError):
                        raise
                    reason = f"{type(error).__name__}: {error}"
                    raise SinkFailed(self._name, action, tries, reason) from error
                cause = error
            self.retried += 1
            delay = next(delays)
            _log.warning(
                "%s failed to %s, next try in %.1f s: %r", self._name, action, delay, cause
            )
            await asyncio.sleep(delay)

    async def call_once(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Call an optional method of the sink once and return its result.

        Log an error instead of raising it.
        """
        try:
            return await self._threads.run(function, *arguments)
        except (Exception, asyncio.CancelledError) as error:  # a sink may raise anything
            if _is_cancelled(error):
                raise
            _log.warning(
                "%s failed to clean up a batch that was not written", self._name, exc_info=True
            )

    async def close(self, grace: Grace) -> None:
        """Wait until running calls have ended, or until the grace period is over."""
        try:
            async with asyncio.timeout_at(grace.end()):
                await self._threads.end()
        except TimeoutError:
            _log.error(
                "a call to %s still runs after grace_ms; its last batch may or may not be written",
                self._name,
            )


def _is_cancelled(error: BaseException) -> bool:
    """Return whether `error` is the cancellation of this task, not of a task inside the sink."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
