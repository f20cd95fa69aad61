"""Waits for a condition, and for an event with a time limit."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

POLL_SECONDS: Final = 0.05


async def wait_until(
    predicate: Callable[[], bool | Awaitable[bool]], *, every: float = POLL_SECONDS
) -> None:
    """Wait until `predicate`, a function or a coroutine function, returns True.

    It is called at once and then every `every` seconds. Its exceptions are raised. Use this only
    for rare conditions for which no `asyncio.Event` is set.
    """
    while True:
        result = predicate()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return
        await asyncio.sleep(every)


async def wait_set(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for at most `seconds`. Return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
