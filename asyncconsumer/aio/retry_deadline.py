"""A time limit for retries."""

import asyncio
from random import Random

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.errors import ConsumerError


class RetryDeadline:
    """A time limit for the retries of one operation, with backoff between the attempts.

    The limit is counted from the first failure.
    """

    def __init__(self, milliseconds: float, randomness: Random) -> None:
        self._seconds = milliseconds / 1000
        self._delays = backoff(0.05, 1.0, randomness)
        self._deadline: float | None = None

    async def wait_or_raise(
        self, error: ConsumerError, *, treat_as_retriable: bool = False
    ) -> None:
        """Wait before the next attempt after `error`.

        If the time limit has passed, or if `error` is not retriable, raise `error`. With
        `treat_as_retriable`, any error is retriable.
        """
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._seconds
        if not (error.retriable or treat_as_retriable) or now >= self._deadline:
            raise error
        await asyncio.sleep(min(next(self._delays), self._deadline - now))
