"""Connection attempts to one broker address: backoff and shared results."""

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

_LEAST_BETWEEN_TRIES: Final = 0.5  # seconds, after a failure
_STABLE_AFTER: Final = 2.0  # seconds; a connection that lasts this long resets the backoff

_Trial: TypeAlias = asyncio.Future[ConsumerError | None]


class BrokerNode:
    """A broker address. After a failure, one caller at a time tries to connect, with backoff."""

    def __init__(self, config: ConnectionConfig, randomness: Random) -> None:
        self.used_at = -inf  # when a connection was last requested
        self._config = config
        self._randomness = randomness
        self._waits = self._fresh_waits()
        self._log = RateLimitedLogger(logging.getLogger(__name__))
        # set while the broker is healthy; not before the first success
        self._well = asyncio.Event()
        self._next_try = -inf  # earliest time of the next attempt after a failure
        self._last_trouble = -inf
        self._trial: _Trial | None = None  # the attempt in flight, which other callers wait for

    def wait(self) -> float:
        """Return the seconds until the next attempt is allowed."""
        return 0.0 if self._well.is_set() else max(0.0, self._next_try - _now())

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until an attempt is allowed, and record the result of the attempt in the block.

        Callers that arrive during an attempt share its result, including its error. Otherwise many
        callers would try an unreachable broker one after the other.
        """
        trial = await self._place_in_line()
        outcome: ConsumerError | None = None
        try:
            yield
            self._well.set()  # the backoff is reset only after a connection has lasted
        except ConsumerError as error:
            outcome = error
            if trial is not None or self._well.is_set():
                wait = self._in_trouble()
                self._log.warning("no connection: %s. Next try in %.1f s", error, wait)
            raise
        finally:
            self._end(trial, outcome)

    async def _place_in_line(self) -> _Trial | None:
        """Return a future if the caller has to make the attempt, or None if healthy.

        Raise the error of an attempt that another caller made meanwhile.
        """
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
                self._end(trial, None)  # a waiting caller makes the attempt instead
                raise
            return trial
        self._next_try = _now() + _LEAST_BETWEEN_TRIES  # used if this attempt fails
        return None

    def _end(self, trial: _Trial | None, outcome: ConsumerError | None) -> None:
        if trial is not None:
            self._trial = None
            trial.set_result(outcome)

    def lost(self, error: ConsumerError, since: float) -> None:
        """Record that a connection broke, which was open since the time `since`.

        Connections to one broker break together, and are noticed one after the other. A connection
        older than the last failure belongs to that failure, and must not extend the backoff.
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
