"""A context manager that cancels its block when a condition becomes true."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from asyncconsumer.aio.interruptible import interruptible


@asynccontextmanager
async def unless(better: Callable[[], bool], *, every: float) -> AsyncIterator[None]:
    """Run the block, and end it without an error as soon as `better` returns true.

    `better` is called every `every` seconds, for the first time after `every` seconds. A block that
    is done by then is not interrupted.
    """
    loop = asyncio.get_running_loop()
    async with interruptible() as running:
        looks: list[asyncio.TimerHandle] = []

        def look() -> None:
            if better():
                running.reschedule(loop.time())
            else:
                looks[:] = [loop.call_later(every, look)]

        looks.append(loop.call_later(every, look))
        try:
            yield
        finally:
            looks[0].cancel()
