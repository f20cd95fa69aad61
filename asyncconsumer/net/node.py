"""The attempts to connect to one broker address, with backoff and shared results."""

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from math import inf
from random import Random
from typing import Final, TypeAlias

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.clock import loop_time
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConsumerError

_MIN_BETWEEN_ATTEMPTS: Final = 0.5  # seconds, after a failure
_STABLE_AFTER: Final = 2.0  # seconds; a connection that lasts this long resets the backoff

_ConnectAttempt: TypeAlias = asyncio.Future[ConsumerError | None]


class BrokerNode:
    """A broker's address and its recent failures.

    After a failure, only one caller at a time tries to connect, with backoff.
    """

    def __init__(self, config: ConnectionConfig, randomness: Random) -> None:
        self.used_at = -inf  # when a connection was last requested
        self._config = config
        self._randomness = randomness
        self._backoff = self._new_backoff()
        self._log = RateLimitedLogger(logging.getLogger(__name__))
        # Set while the broker is healthy. It is clear before the first success.
        self._healthy = asyncio.Event()
        self._next_attempt = -inf  # earliest time of the next attempt after a failure
        self._last_failure = -inf
        self._attempt: _ConnectAttempt | None = None  # in flight; other callers wait for it

    def wait(self) -> float:
        """Return the seconds until the next attempt to connect is allowed, or 0."""
        return 0.0 if self._healthy.is_set() else max(0.0, self._next_attempt - loop_time())

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Return an async context manager for one attempt to connect.

        It first waits until the caller may connect. Callers that arrive during an attempt share its
        result, including its error. Otherwise many callers would try an unreachable broker one
        after the other.
        """
        attempt = await self._wait_turn()
        result: ConsumerError | None = None
        try:
            yield
            self._healthy.set()  # the backoff is reset only after a connection has lasted
        except ConsumerError as error:
            result = error
            if attempt is not None or self._healthy.is_set():
                wait = self._note_failure()
                self._log.warning("failed to connect: %s; next attempt in %.1f s", error, wait)
            raise
        finally:
            self._end(attempt, result)

    async def _wait_turn(self) -> _ConnectAttempt | None:
        """Wait until the caller may try to connect.

        Return None if the broker is healthy. Otherwise return a future on which the caller must set
        the result of its attempt, because other callers wait for it. If another caller's attempt
        fails during the wait, raise its error.
        """
        while not self._healthy.is_set():
            if self._attempt is not None:
                await asyncio.wait((shared := self._attempt,))
                if (error := shared.result()) is not None:
                    raise copy.copy(error) from error
                continue
            attempt = self._attempt = asyncio.get_running_loop().create_future()
            wait = self.wait()
            self._next_attempt = loop_time() + wait + _MIN_BETWEEN_ATTEMPTS
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                self._end(attempt, None)  # a waiting caller makes the attempt instead
                raise
            return attempt
        self._next_attempt = loop_time() + _MIN_BETWEEN_ATTEMPTS  # used if this attempt fails
        return None

    def _end(self, attempt: _ConnectAttempt | None, result: ConsumerError | None) -> None:
        if attempt is not None:
            self._attempt = None
            attempt.set_result(result)

    def on_connection_lost(self, error: ConsumerError, since: float) -> None:
        """Record that a connection, open since the loop time `since`, broke with `error`.

        Connections to one broker break together, but are noticed one after the other. If `since` is
        before the last failure, the connection broke with that failure, and must not extend the
        backoff.
        """
        if since <= self._last_failure:
            return
        if loop_time() - since >= _STABLE_AFTER:
            self._backoff = self._new_backoff()
        wait = self._note_failure()
        self._log.warning("a connection broke: %s; next attempt in %.1f s", error, wait)

    def _note_failure(self) -> float:
        self._healthy.clear()
        self._last_failure = loop_time()
        self._next_attempt = max(self._next_attempt, loop_time() + next(self._backoff))
        return self.wait()

    def _new_backoff(self) -> Iterator[float]:
        first, limit = self._config.reconnect_backoff_ms, self._config.reconnect_backoff_max_ms
        return backoff(first / 1000, limit / 1000, self._randomness)
