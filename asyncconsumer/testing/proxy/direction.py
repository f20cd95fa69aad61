"""A direction of the network, which all connections share."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from random import Random

from asyncconsumer.testing.proxy.faults import Faults


class ChangeSignal:
    """A notification that wakes all waiters at each change."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def spread(self) -> None:
        """Wake all current waiters."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, within: float = math.inf) -> None:
        """Wait until the next change or until the timeout in seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within if within < math.inf else None):
                await self._next.wait()


class NetworkDirection:
    """The active faults of one direction of a proxied connection, and its byte count."""

    def __init__(self, randomness: Random, progress: ChangeSignal) -> None:
        self.faults = Faults()
        self.changed = ChangeSignal()
        self.carried = 0
        self.progress = progress
        self._randomness = randomness

    def alter(self, change: Callable[[Faults], Faults]) -> None:
        """Replace the faults, and wake the pipes that wait because of the old faults."""
        self.faults = change(self.faults)
        self.changed.spread()

    def carry(self, size: int) -> None:
        """Count delivered bytes."""
        self.carried += size

    def luck(self) -> float:
        """Return the random jitter of the next bytes, from 0 to 1."""
        return self._randomness.random()
