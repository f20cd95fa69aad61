"""Work that is given up when there is something better to do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def unless(better: Callable[[], bool], *, every: float) -> AsyncIterator[None]:
    """Run the block, which simply ends where `better` is true: it is asked every so many seconds.

    The first time after as many: what is done by then is not given up.
    """
    loop, running = asyncio.get_running_loop(), asyncio.timeout(None)
    looks: list[asyncio.TimerHandle] = []

    def look() -> None:
        if better():
            running.reschedule(loop.time())
        else:
            looks[:] = [loop.call_later(every, look)]

    looks.append(loop.call_later(every, look))
    try:
        async with running:
            yield
    except TimeoutError:
        if not running.expired():
            raise
    finally:
        looks[0].cancel()
