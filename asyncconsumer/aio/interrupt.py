"""Context managers whose block can be ended from outside, by other code or by a condition."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def interruptible() -> AsyncIterator[asyncio.Timeout]:
    """Return an async context manager whose block other code can end without an error.

    The context manager returns a timeout to the ``as`` clause. To end the block at its current
    await, reschedule the timeout to the current time.
    """
    running = asyncio.timeout(None)
    try:
        async with running:
            yield running
    except TimeoutError:
        if not running.expired():
            raise


@asynccontextmanager
async def cancel_when(condition: Callable[[], bool], *, every: float) -> AsyncIterator[None]:
    """Return an async context manager whose block ends when `condition` returns True.

    The block is cancelled at its current await, and no error is raised. The condition is checked
    every `every` seconds.
    """
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    async with interruptible() as running:

        def check() -> None:
            if condition():
                running.reschedule(loop.time())
            else:
                timers[:] = [loop.call_later(every, check)]

        timers.append(loop.call_later(every, check))
        try:
            yield
        finally:
            timers[0].cancel()
