"""How long one thing may go wrong before its error is raised."""

import asyncio
from random import Random

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.errors import ConsumerError


class RetryDeadline:
    """Waits between tries that grow, for so many milliseconds in all. Make one for each thing."""

    def __init__(self, milliseconds: float, randomness: Random) -> None:
        self._seconds = milliseconds / 1000
        self._delays = backoff(0.05, 1.0, randomness)
        self._deadline: float | None = None

    async def bear(self, error: ConsumerError, *, hopeful: bool = False) -> None:
        """Wait before the next try, or raise the error: it is final, or the time is over.

        Who is `hopeful` knows better than the error that trying again may help.
        """
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._seconds
        if not (error.retriable or hopeful) or now >= self._deadline:
            raise error
        await asyncio.sleep(min(next(self._delays), self._deadline - now))
