"""A middleware that limits the time of a call."""

import asyncio
from typing import Any

from asyncconsumer.config.validation import whole_number
from asyncconsumer.errors import HandlerTimedOut
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.middleware import CallNext


class Timeout:
    """A middleware that limits the time of a call, including the middlewares inside of it.

    A call that takes longer is cancelled and fails with `HandlerTimedOut`. The option
    `handler_timeout_ms` limits only the handler and its dependencies.
    """

    def __init__(self, timeout_ms: int) -> None:
        whole_number("timeout_ms", timeout_ms, 1)
        self._timeout_ms = timeout_ms

    async def __call__(self, call_next: CallNext, context: Context) -> Any:  # noqa: ANN401
        """Make the call. When its time is over, cancel it and raise `HandlerTimedOut`."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000) as timeout:
                return await call_next(context)
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise HandlerTimedOut(context.handler, self._timeout_ms) from error
