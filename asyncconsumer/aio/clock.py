"""The clock of the event loop, and the system's wall clock."""

import asyncio
import time


def loop_time() -> float:
    """Return the time of the running event loop in seconds."""
    return asyncio.get_running_loop().time()


def wall_clock() -> float:
    """Return the seconds since 1970."""
    return time.time()  # noqa: TID251 - this is where other modules get it from


def wall_clock_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000
