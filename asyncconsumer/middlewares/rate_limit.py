"""A middleware that limits the rate of records."""

import asyncio
from typing import Any

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.middleware import CallNext


class RateLimit:
    """A middleware that lets `per_second` records pass on average, and up to `burst` at once.

    A record of a batch counts like a single one. Calls wait in the order in which they arrive. The
    limit applies to this process and to all handlers that share the object.
    """

    def __init__(self, per_second: float, *, burst: int = 1) -> None:
        if per_second <= 0 or burst < 1:
            raise ConfigError(
                "`per_second` must be more than 0 and `burst` at least 1, got "
                f"{per_second!r} and {burst!r}"
            )
        self._seconds = 1 / per_second  # between two records
        self._ahead = (burst - 1) * self._seconds
        self._due = 0.0  # the time at which the next record is due without a burst

    async def __call__(self, call_next: CallNext, context: Context) -> Any:  # noqa: ANN401
        """Make the call as soon as the rate allows it."""
        now = asyncio.get_running_loop().time()
        due = max(self._due, now)
        self._due = due + len(context.records) * self._seconds
        if (wait := due - self._ahead - now) > 0:
            await asyncio.sleep(wait)
        return await call_next(context)
