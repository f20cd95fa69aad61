"""The limits after which a worker process is replaced by a new one."""

import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_MIB: Final = 2**20
_STATM: Final = Path("/proc/self/statm")


class Usage(NamedTuple):
    """The resources that a worker has used so far."""

    age: float  # seconds
    records: int
    memory: int  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecycleLimits:
    """The limits of each worker. None means that there is no limit."""

    records: int | None = None
    seconds: float | None = None
    memory_mib: int | None = None

    def exceeded_by(self, usage: Usage) -> str | None:
        """Return the limit that a worker has reached, as text, or None."""
        if self.records is not None and usage.records >= self.records:
            return f"it has read {usage.records} records"
        if self.seconds is not None and usage.age >= self.seconds:
            return f"it has run for {usage.age:.0f} s"
        if self.memory_mib is not None and usage.memory >= self.memory_mib * _MIB:
            return f"it uses {usage.memory // _MIB} MiB of memory"
        return None


NO_LIMITS: Final = RecycleLimits()


def resident_bytes() -> int:
    """Return the memory that this process uses now. Without Linux's /proc, return its peak."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * resource.getpagesize()
