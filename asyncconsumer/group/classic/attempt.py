"""Signals between the tasks of one member: to rejoin, and to cancel an attempt to join."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.interrupt import interruptible
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConsumerError

_log: Final = logging.getLogger(__name__)
_FIRST_WAIT: Final = 0.05  # seconds
_LONGEST_WAIT: Final = 1.0
_FREE_GENERATIONS: Final = 5


class RejoinSignal:
    """A request that the member rejoins its group, or the error that ended its membership."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self._reason: str | None = None
        self._failure: ConsumerError | None = None

    def request(self, reason: str) -> None:
        """Request a rejoin. Only the first reason since the last rejoin is kept."""
        if not self.requested.is_set():
            self._reason = reason
            self.requested.set()

    def fail(self, error: ConsumerError) -> None:
        """Store the error that ends the membership. An error that is stored already is kept."""
        self._failure = self._failure or error
        self.requested.set()

    def check(self) -> None:
        """Raise the error that ended the membership, if there is one."""
        if self._failure is not None:
            raise self._failure

    def clear(self) -> str | None:
        """Remove the request to rejoin.

        Return the reason of that request, or None if no rejoin was requested.
        """
        self.requested.clear()
        return self._reason


class RejoinPacing:
    """The backoff between generations that follow each other too quickly.

    The first few short generations are not delayed, because members often join one by one. Without
    the backoff, a coordinator that ends each generation at once would receive hundreds of requests
    per second. `log` limits the rate of messages about each generation.
    """

    def __init__(self, randomness: Random) -> None:
        self.log = RateLimitedLogger(_log)
        self._randomness = randomness
        self._waits: Iterator[float] | None = None
        self._began: float | None = None
        self._short = 0  # short generations in a row

    def on_generation(self) -> None:
        """Record that a generation starts now."""
        self._began = asyncio.get_running_loop().time()

    async def pause(self, interval: float) -> None:
        """Wait before the next generation if the last one was shorter than `interval` seconds."""
        began, self._began = self._began, None
        if began is None:
            return
        if asyncio.get_running_loop().time() - began >= interval:
            self._short, self._waits = 0, None
            return
        self._short += 1
        if self._short > _FREE_GENERATIONS:
            self._waits = self._waits or self.waits()
            await asyncio.sleep(next(self._waits))

    def waits(self) -> Iterator[float]:
        """Return an iterator over the delays between retries, in seconds. The delays increase."""
        return backoff(_FIRST_WAIT, _LONGEST_WAIT, self._randomness)


class JoinAttempt:
    """An attempt to join the group. Another task can cancel it."""

    def __init__(self, randomness: Random) -> None:
        self._randomness = randomness
        self._waits = self._fresh_waits()
        self._running: asyncio.Timeout | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Return an async context manager whose block another task can end with `cancel`.

        The block then ends at its current await, and the context manager raises no exception.
        """
        async with interruptible() as self._running:
            try:
                yield
            finally:
                self._running = None

    def cancel(self) -> None:
        """Cancel the running block of `run`, if there is one."""
        if self._running is not None and self._running.when() is None:
            self._running.reschedule(asyncio.get_running_loop().time())

    async def pause(self) -> None:
        """Wait before the next attempt. Each call waits longer than the one before."""
        await asyncio.sleep(next(self._waits))

    def succeeded(self) -> None:
        """Reset the delay between attempts to its minimum."""
        self._waits = self._fresh_waits()

    def _fresh_waits(self) -> Iterator[float]:
        return backoff(_FIRST_WAIT, _LONGEST_WAIT, self._randomness)
