"""How a node has behaved, and when it may be tried next."""

import asyncio
import logging
from collections.abc import Iterator
from math import inf
from random import Random
from typing import Final

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConsumerError
from asyncconsumer.net.backoff import backoff
from asyncconsumer.net.quiet import QuietLog

_LEAST_BETWEEN_TRIES: Final = 0.5  # seconds, while the node is not well
_STABLE_AFTER: Final = 10.0  # seconds that a connection lasts when its node is well again


class Node:
    """One address. Until a try succeeds, tries have an order, and a distance that grows."""

    def __init__(self, config: ConnectionConfig, randomness: Random) -> None:
        self._config = config
        self._randomness = randomness
        self._waits = self._fresh_waits()
        self._log = QuietLog(logging.getLogger(__name__))
        self._well = asyncio.Event()  # not before a try has succeeded
        self._next_try = -inf  # while it is not well, the first moment that nobody has taken yet

    def wait(self) -> float:
        """Seconds until it may be tried again."""
        return 0.0 if self._well.is_set() else max(0.0, self._next_try - _now())

    async def turn(self) -> None:
        """Wait until one may try: for the next free moment, or until another try succeeds."""
        mine = _now() + self.wait()
        self._next_try = mine + _LEAST_BETWEEN_TRIES
        try:
            async with asyncio.timeout_at(mine):
                await self._well.wait()
        except TimeoutError:
            pass

    def succeeded(self) -> None:
        """A try ended in a connection. Waits stay as long as they are until one has lasted."""
        self._well.set()

    def failed(self, error: ConsumerError) -> None:
        """A try ended in an error."""
        wait = self._in_trouble()
        self._log.warning("no connection: %s. Next try in %.1f s", error, wait)

    def lost(self, error: ConsumerError, since: float) -> None:
        """A connection that was open since then broke."""
        if _now() - since >= _STABLE_AFTER:
            self._waits = self._fresh_waits()
        wait = self._in_trouble()
        self._log.warning("a connection broke: %s. Next try in %.1f s", error, wait)

    def _in_trouble(self) -> float:
        self._well.clear()
        self._next_try = max(self._next_try, _now() + next(self._waits))
        return self.wait()

    def _fresh_waits(self) -> Iterator[float]:
        first, most = self._config.reconnect_backoff_ms, self._config.reconnect_backoff_max_ms
        return backoff(first / 1000, most / 1000, self._randomness)


def _now() -> float:
    return asyncio.get_running_loop().time()
