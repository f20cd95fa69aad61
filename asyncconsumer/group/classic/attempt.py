"""How the coroutines of one member reach each other: a bell, and an attempt to be broken off."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.interruptible import interruptible
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConsumerError

_log: Final = logging.getLogger(__name__)
_FIRST_WAIT: Final = 0.05  # seconds
_LONGEST_WAIT: Final = 1.0
_FREE_GENERATIONS: Final = 5


class RejoinSignal:
    """Rung when the member should join again, or cannot go on."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self._reason: str | None = None
        self._failure: ConsumerError | None = None

    def ring(self, reason: str) -> None:
        """There is something to do; the first reason since the last time is the one told."""
        if not self.rung.is_set():
            self._reason = reason
            self.rung.set()

    def fail(self, error: ConsumerError) -> None:
        """There is nothing more to do."""
        self._failure = self._failure or error
        self.rung.set()

    def check(self) -> None:
        """Raise what ends the membership, if something does."""
        if self._failure is not None:
            raise self._failure

    def answered(self) -> str | None:
        """Somebody sees to it; the reason why."""
        self.rung.clear()
        return self._reason


class RejoinPacing:
    """Waits before a generation that follows another too soon, each time longer.

    A few may follow each other at once, as when members come one by one. A coordinator that ends
    each generation as soon as it began would otherwise be asked hundreds of times a second.
    `log` is for what is said about each generation.
    """

    def __init__(self, randomness: Random) -> None:
        self.log = RateLimitedLogger(_log)
        self._randomness = randomness
        self._waits: Iterator[float] | None = None
        self._began: float | None = None
        self._short = 0  # generations in a row

    def began(self) -> None:
        """A generation began now."""
        self._began = asyncio.get_running_loop().time()

    async def pause(self, interval: float) -> None:
        """Wait before the next one, if the last one was shorter than a heartbeat interval."""
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
        """Waits between tries, each time longer."""
        return backoff(_FIRST_WAIT, _LONGEST_WAIT, self._randomness)


class JoinAttempt:
    """Something that is tried, perhaps for long, until another coroutine breaks it off."""

    def __init__(self, randomness: Random) -> None:
        self._randomness = randomness
        self._waits = self._fresh_waits()
        self._running: asyncio.Timeout | None = None

    @asynccontextmanager
    async def made(self) -> AsyncIterator[None]:
        """Run the block, which simply ends where it is broken off."""
        async with interruptible() as self._running:
            try:
                yield
            finally:
                self._running = None

    def break_off(self) -> None:
        """End the block that is running, if one is."""
        if self._running is not None and self._running.when() is None:
            self._running.reschedule(asyncio.get_running_loop().time())

    async def pause(self) -> None:
        """Wait before the next, each time longer."""
        await asyncio.sleep(next(self._waits))

    def succeeded(self) -> None:
        """The next pause is short again."""
        self._waits = self._fresh_waits()

    def _fresh_waits(self) -> Iterator[float]:
        return backoff(_FIRST_WAIT, _LONGEST_WAIT, self._randomness)
