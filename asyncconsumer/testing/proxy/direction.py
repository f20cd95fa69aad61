"""One direction of the network, shared by all connections."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from random import Random

from asyncconsumer.testing.proxy.faults import Faults


class News:
    """Wakes all who wait each time something has changed; they look for themselves what."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def spread(self) -> None:
        """Wake those who wait now."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, within: float = math.inf) -> None:
        """Return at the next change, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within if within < math.inf else None):
                await self._next.wait()


class NetworkDirection:
    """The faults of one direction as they stand, and how many bytes it has carried."""

    def __init__(self, randomness: Random, progress: News) -> None:
        self.faults = Faults()
        self.changed = News()
        self.carried = 0
        self.progress = progress
        self._randomness = randomness

    def alter(self, change: Callable[[Faults], Faults]) -> None:
        """Replace the faults, and wake every pipe that waits because of the old ones."""
        self.faults = change(self.faults)
        self.changed.spread()

    def carry(self, size: int) -> None:
        """Count bytes that have been handed on."""
        self.carried += size

    def luck(self) -> float:
        """Where in the jitter the next bytes fall, from 0 to 1."""
        return self._randomness.random()
