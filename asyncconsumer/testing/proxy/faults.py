"""The faults of one direction of a network, as an immutable value."""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from asyncconsumer.errors import ConfigError

Direction: TypeAlias = Literal["up", "down", "both"]
"""``up``: from the client to the server. ``down``: from the server to the client."""

CHUNK = 64 * 2**10
"""The maximum number of bytes of one read or one write."""

_THROTTLE_TICK = 0.05
"""A throttled direction delivers the bytes of this many seconds at once, and then waits."""


class Ending(enum.Enum):
    """The way in which a connection ends: FIN or RST."""

    FIN = enum.auto()
    RST = enum.auto()


class Verdict(enum.Enum):
    """The decision of a frame callback: deliver, hold or drop the frame, or end the connection."""

    PASS = enum.auto()
    HOLD = enum.auto()  # hold it and all later bytes until heal() or another on_frame()
    DROP = enum.auto()  # drop it; later frames arrive
    CUT = enum.auto()  # drop it; the connection ends with FIN on both sides
    RESET = enum.auto()  # drop it; the connection ends with RST on both sides


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame in transit: the bytes that follow a big-endian length prefix of four bytes."""

    connection: int  # the index of its connection, from 0
    index: int  # its index on this connection, in this direction
    body: bytes  # without the prefix; only the first MiB of a long frame


FrameHook: TypeAlias = Callable[[Frame], Verdict]


@dataclass(frozen=True, slots=True, eq=False)
class Truncation:
    """A number of bytes after which a connection ends.

    Each instance counts the bytes from its first use, so two instances are never equal.
    """

    after: int
    ending: Ending

    def __post_init__(self) -> None:
        if self.after < 0:
            raise ConfigError(f"truncate: after must be 0 or more bytes, got {self.after}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of one direction of the network. By default there are none."""

    black_hole: bool = False
    delay: float = 0.0
    jitter: float = 0.0
    bytes_per_second: float = math.inf
    max_bytes: int = CHUNK
    pause: float = 0.0
    truncation: Truncation | None = None
    on_frame: FrameHook | None = None

    def __post_init__(self) -> None:
        for name in ("delay", "jitter", "pause"):
            seconds = getattr(self, name)
            if not 0 <= seconds < math.inf:
                raise ConfigError(f"{name} must be 0 or more seconds, and finite, got {seconds}")
        if not self.bytes_per_second > 0:
            raise ConfigError(
                f"throttle: bytes_per_second must be more than 0, got {self.bytes_per_second}; "
                "to hold all bytes use black_hole()"
            )
        if self.max_bytes < 1:
            raise ConfigError(f"slice: max_bytes must be 1 or more, got {self.max_bytes}")

    def latency(self, luck: float) -> float:
        """Return the latency of bytes in seconds: the delay, and a random part of the jitter.

        ``luck`` is a random number from 0 to 1.
        """
        return self.delay + self.jitter * luck

    def gap(self, size: int) -> float:
        """Return the pause in seconds after the delivery of a piece of ``size`` bytes."""
        return size / self.bytes_per_second + self.pause

    @property
    def piece(self) -> int:
        """The maximum number of bytes that are delivered at once."""
        if self.bytes_per_second == math.inf:
            return min(self.max_bytes, CHUNK)
        return min(self.max_bytes, CHUNK, max(1, int(self.bytes_per_second * _THROTTLE_TICK)))
