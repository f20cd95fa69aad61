"""The faults of one direction of the network, which all connections share."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from random import Random

from asyncconsumer.testing.proxy.faults import Faults


class ChangeSignal:
    """An event that wakes all waiting tasks at each change, and is then cleared."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def spread(self) -> None:
        """Wake all tasks that wait now."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, within: float = math.inf) -> None:
        """Wait until the next change, for at most `within` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within if within < math.inf else None):
                await self._next.wait()


class NetworkDirection:
    """The active faults of one direction of the network, and the number of delivered bytes."""

    def __init__(self, randomness: Random, progress: ChangeSignal) -> None:
        self.faults = Faults()
        self.changed = ChangeSignal()
        self.carried = 0
        self.progress = progress
        self._randomness = randomness

    def alter(self, change: Callable[[Faults], Faults]) -> None:
        """Replace the faults by the result of `change`.

        Wake the pipes, because they may wait for a time that depends on the previous faults.
        """
        self.faults = change(self.faults)
        self.changed.spread()

    def carry(self, size: int) -> None:
        """Add `size` to the number of delivered bytes."""
        self.carried += size

    def luck(self) -> float:
        """Return a random number from 0 to 1 for the jitter of the next bytes."""
        return self._randomness.random()
