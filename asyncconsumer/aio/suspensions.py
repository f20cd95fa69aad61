"""The time that the loop's clock does not count, because the machine was suspended or paused.

Coordinators count that time, and CLOCK_MONOTONIC does not. CLOCK_BOOTTIME counts a suspension
(Linux). A virtual machine that is paused by its host only sees its wall clock corrected later.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from asyncconsumer.aio.clock import wall_clock

_CLOCK_DRIFT: Final = 0.1  # the fraction of a timeout by which clocks may differ
_MIN_JUMP: Final = 0.1  # seconds; smaller jumps are normal clock corrections
_MAX_JUMPS: Final = 64
_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", None)


class ClockOffsets(NamedTuple):
    """The offsets of the boot-time and wall clocks from the monotonic clock, in seconds."""

    boottime: float
    wall: float


def boot_clock() -> float:
    """Return a time in seconds that also advances while the machine is suspended (on Linux)."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def system_offsets() -> ClockOffsets:
    """Return the current offsets of the system's clocks."""
    monotonic = time.monotonic()
    wall = wall_clock() - monotonic
    if _BOOTTIME is None:
        return ClockOffsets(0.0, wall)
    return ClockOffsets(time.clock_gettime(_BOOTTIME) - monotonic, wall)


class _ClockJump(NamedTuple):
    detected_at: float  # loop time of the detection
    boottime: float
    largest: float


class Suspensions:
    """A detector of suspensions, at which other clocks jump relative to the loop's clock.

    A correction of the wall clock looks like a suspension. So if only the wall clock has jumped,
    the reaction must be harmless: delivery waits for the next heartbeat, and no partition is
    dropped.
    """

    def __init__(self, offsets: Callable[[], ClockOffsets] = system_offsets) -> None:
        self._offsets = offsets
        self._last = offsets()
        self._jumps: deque[_ClockJump] = deque(maxlen=_MAX_JUMPS)

    def check(self) -> None:
        """Compare the clocks, and store a jump since the last comparison.

        Call this before a measurement of time begins. Otherwise an earlier jump would be noticed
        during the measurement, and count for it.
        """
        before, self._last = self._last, self._offsets()
        boottime = self._last.boottime - before.boottime
        largest = max(boottime, self._last.wall - before.wall)
        if largest >= _MIN_JUMP:
            now = asyncio.get_running_loop().time()
            self._jumps.append(_ClockJump(now, max(boottime, 0.0), largest))

    def certain_end(self, start: float, timeout: float) -> float:
        """Return the earliest loop time at which a timeout that a server measures may end.

        The server measures `timeout` seconds from the loop time `start`. Its clock counts suspended
        time, and may be faster. So suspended time and a margin for the drift are subtracted.
        """
        return start + timeout * (1 - _CLOCK_DRIFT) - self.since(start)

    def since(self, when: float, *, certain: bool = False) -> float:
        """Return the seconds of suspended time since the loop time `when`.

        The loop's clock does not count these seconds. With `certain`, a jump of the wall clock
        alone is ignored.
        """
        self.check()
        if not self._jumps:
            return 0.0
        jumps = (jump for jump in self._jumps if jump.detected_at >= when)
        return sum(jump.boottime if certain else jump.largest for jump in jumps)
