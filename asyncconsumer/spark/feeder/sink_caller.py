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
_SHORTEST_WAIT, _LONGEST_WAIT = 0.1, 5.0


class Grace:
    """The time limit for all steps of closing together, counted from the first use."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def end(self) -> float:
        """Return the deadline by the loop's clock. The first call sets it."""
        if self._end is None:
            self._end = asyncio.get_running_loop().time() + self._seconds
        return self._end


class SinkCaller:
    """The caller of one sink, which repeats failed calls."""

    def __init__(self, name: str, *, threads: int, retries: int, randomness: Random) -> None:
        self.repeated = 0  # number of repeated calls
        self._name = name
        self._threads = SinkThreads(threads)
        self._retries = retries
        self._randomness = randomness

    async def ask(self, what: str, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Call the sink and return its result. Retry on errors, then raise `SinkFailed`."""
        waits = backoff(_SHORTEST_WAIT, _LONGEST_WAIT, self._randomness)
        tries = 0
        while True:
            tries += 1
            try:
                return await self._threads.run(function, *arguments)
            except (Exception, asyncio.CancelledError) as error:
                if _is_for_us(error):
                    raise
                final = isinstance(error, ConsumerError) and not error.retriable
                if final or tries > self._retries:
                    if isinstance(error, ConsumerError):
                        raise
                    reason = f"{type(error).__name__}: {error}"
                    raise SinkFailed(self._name, what, tries, reason) from error
                cause = error
            self.repeated += 1
            wait = next(waits)
            _log.warning("%s: %s failed, again in %.1f s: %r", self._name, what, wait, cause)
            await asyncio.sleep(wait)

    async def once(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Call the sink once, for an optional step. Log an error and return None."""
        try:
            return await self._threads.run(function, *arguments)
        except (Exception, asyncio.CancelledError) as error:  # a sink may raise anything
            if _is_for_us(error):
                raise
            _log.warning(
                "%s: what was left over could not be cleared away", self._name, exc_info=True
            )

    async def end(self, grace: Grace) -> None:
        """Wait until running calls have ended, or until the grace period is over."""
        try:
            async with asyncio.timeout_at(grace.end()):
                await self._threads.end()
        except TimeoutError:
            _log.error("%s: a thread still writes; what becomes of it is not known", self._name)


def _is_for_us(error: BaseException) -> bool:
    """Return whether this task is being cancelled, and not something that the sink awaits."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
