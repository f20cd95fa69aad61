"""Time that passed while the loop's clock stood still: the machine was suspended, or paused.

Coordinators count that time, and CLOCK_MONOTONIC does not. CLOCK_BOOTTIME counts a suspension
(Linux). A virtual machine that is paused from outside only sees its wall clock corrected later.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

_LEAST: Final = 0.1  # seconds; less is how clocks are slowly corrected
_MOST_KEPT: Final = 64


class ClockOffsets(NamedTuple):
    """How far two clocks are ahead of the monotonic one, in seconds."""

    boottime: float
    wall: float


def system_offsets() -> ClockOffsets:
    """Those of the system's clocks now."""
    monotonic = time.monotonic()
    wall = datetime.now(UTC).timestamp() - monotonic
    if (clock := getattr(time, "CLOCK_BOOTTIME", None)) is None:
        return ClockOffsets(0.0, wall)
    return ClockOffsets(time.clock_gettime(clock) - monotonic, wall)


class _ClockJump(NamedTuple):
    at: float  # when it was noticed, by the loop's clock
    boottime: float
    most: float


class Suspensions:
    """Notices jumps of other clocks against the loop's clock.

    A correction of the wall clock looks like a pause. So what follows from a jump of that clock
    alone must be harmless: delivery waits for the next heartbeat, and nothing is given up.
    """

    def __init__(self, offsets: Callable[[], ClockOffsets] = system_offsets) -> None:
        self._offsets = offsets
        self._last = offsets()
        self._jumps: deque[_ClockJump] = deque(maxlen=_MOST_KEPT)

    def look(self) -> None:
        """Compare the clocks. Whoever begins to count time looks first."""
        before, self._last = self._last, self._offsets()
        boottime = self._last.boottime - before.boottime
        most = max(boottime, self._last.wall - before.wall)
        if most >= _LEAST:
            now = asyncio.get_running_loop().time()
            self._jumps.append(_ClockJump(now, max(boottime, 0.0), most))

    def since(self, when: float, *, certain: bool = False) -> float:
        """Seconds that passed unseen by the loop's clock since that moment of it.

        With `certain` a jump of the wall clock alone does not count.
        """
        self.look()
        jumps = (jump for jump in self._jumps if jump.at >= when)
        return sum(jump.boottime if certain else jump.most for jump in jumps)
