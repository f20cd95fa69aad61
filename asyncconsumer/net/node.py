"""How a node has behaved, and when it may be tried next."""

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from math import inf
from random import Random
from typing import Final, TypeAlias

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConsumerError

_LEAST_BETWEEN_TRIES: Final = 0.5  # seconds, while the node is not well
_STABLE_AFTER: Final = 2.0  # seconds that a connection lasts when its node is well again

_Trial: TypeAlias = asyncio.Future[ConsumerError | None]


class BrokerNode:
    """One address. While it is not well, one tries for all, at a distance that grows."""

    def __init__(self, config: ConnectionConfig, randomness: Random) -> None:
        self.used_at = -inf  # when somebody last wanted a connection
        self._config = config
        self._randomness = randomness
        self._waits = self._fresh_waits()
        self._log = RateLimitedLogger(logging.getLogger(__name__))
        self._well = asyncio.Event()  # not before a try has succeeded
        self._next_try = -inf  # while it is not well, the first moment of the next try
        self._last_trouble = -inf
        self._trial: _Trial | None = None  # of the one who tries for all

    def wait(self) -> float:
        """Seconds until it may be tried again."""
        return 0.0 if self._well.is_set() else max(0.0, self._next_try - _now())

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until one may try, and see how the try in the block ends.

        Who finds another trying shares the outcome, its error too: otherwise many who want a dead
        node would try it one after the other, each in its turn.
        """
        trial = await self._place_in_line()
        outcome: ConsumerError | None = None
        try:
            yield
            self._well.set()  # waits stay as long as they are until a connection has lasted
        except ConsumerError as error:
            outcome = error
            if trial is not None or self._well.is_set():
                wait = self._in_trouble()
                self._log.warning("no connection: %s. Next try in %.1f s", error, wait)
            raise
        finally:
            self._end(trial, outcome)

    async def _place_in_line(self) -> _Trial | None:
        """To be the one who tries, or None if the node is well; or the error of who tried."""
        while not self._well.is_set():
            if self._trial is not None:
                await asyncio.wait((shared := self._trial,))
                if (error := shared.result()) is not None:
                    raise copy.copy(error) from error
                continue
            trial = self._trial = asyncio.get_running_loop().create_future()
            wait = self.wait()
            self._next_try = _now() + wait + _LEAST_BETWEEN_TRIES
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                self._end(trial, None)  # one of those who wait for it tries
                raise
            return trial
        self._next_try = _now() + _LEAST_BETWEEN_TRIES  # should this one fail
        return None

    def _end(self, trial: _Trial | None, outcome: ConsumerError | None) -> None:
        if trial is not None:
            self._trial = None
            trial.set_result(outcome)

    def lost(self, error: ConsumerError, since: float) -> None:
        """A connection that was open since then broke.

        Its connections break together, and are missed one after the other: what is older than the
        last trouble is no news of another, and must not make the waits longer.
        """
        if since <= self._last_trouble:
            return
        if _now() - since >= _STABLE_AFTER:
            self._waits = self._fresh_waits()
        wait = self._in_trouble()
        self._log.warning("a connection broke: %s. Next try in %.1f s", error, wait)

    def _in_trouble(self) -> float:
        self._well.clear()
        self._last_trouble = _now()
        self._next_try = max(self._next_try, _now() + next(self._waits))
        return self.wait()

    def _fresh_waits(self) -> Iterator[float]:
        first, most = self._config.reconnect_backoff_ms, self._config.reconnect_backoff_max_ms
        return backoff(first / 1000, most / 1000, self._randomness)


def _now() -> float:
    return asyncio.get_running_loop().time()
