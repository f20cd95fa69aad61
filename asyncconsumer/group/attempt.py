"""How the coroutines of one member reach each other: a bell, and an attempt to be broken off."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from asyncconsumer.errors import ConsumerError
from asyncconsumer.tasks.backoff import backoff
from asyncconsumer.tasks.breakable import breakable

_FIRST_WAIT: Final = 0.05  # seconds
_LONGEST_WAIT: Final = 1.0


class Bell:
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


class Attempt:
    """Something that is tried, perhaps for long, until another coroutine breaks it off."""

    def __init__(self, randomness: Random) -> None:
        self._randomness = randomness
        self._waits = self._fresh_waits()
        self._running: asyncio.Timeout | None = None

    @asynccontextmanager
    async def made(self) -> AsyncIterator[None]:
        """Run the block, which simply ends where it is broken off."""
        async with breakable() as self._running:
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
