"""A block that other code can end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def interruptible() -> AsyncIterator[asyncio.Timeout]:
    """Run the block, and end it without an error when the yielded timeout is rescheduled to now."""
    running = asyncio.timeout(None)
    try:
        async with running:
            yield running
    except TimeoutError:
        if not running.expired():
            raise
