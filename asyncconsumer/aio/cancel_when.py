"""Work that is given up when there is something better to do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from asyncconsumer.aio.interruptible import interruptible


@asynccontextmanager
async def unless(better: Callable[[], bool], *, every: float) -> AsyncIterator[None]:
    """Run the block, which simply ends where `better` is true: it is asked every so many seconds.

    The first time after as many: what is done by then is not given up.
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
