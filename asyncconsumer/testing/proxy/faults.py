"""What a network may do to the bytes of one direction, as one immutable value."""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from asyncconsumer.errors import ConfigError

Direction: TypeAlias = Literal["up", "down", "both"]
"""``up``: from the client to the server. ``down``: from the server to the client."""

CHUNK = 64 * 2**10
"""The most that one read or one write moves."""

_THROTTLE_TICK = 0.05
"""A throttled direction moves what its rate allows in this many seconds, then waits."""


class Ending(enum.Enum):
    """How a sender says that it has finished: in order, or by breaking off."""

    FIN = enum.auto()
    RST = enum.auto()


class Verdict(enum.Enum):
    """What becomes of a frame that a hook has seen."""

    PASS = enum.auto()
    HOLD = enum.auto()  # it and all that follows wait for heal(), or for another on_frame()
    DROP = enum.auto()  # it never arrives; what follows does
    CUT = enum.auto()  # it never arrives; the connection ends with FIN on both sides
    RESET = enum.auto()  # it never arrives; the connection ends with RST on both sides


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame on its way: what follows a length prefix of four bytes, big-endian."""

    connection: int  # the number of its connection, from 0
    index: int  # how many frames went before it on this connection, in this direction
    body: bytes  # without the prefix; of a very long frame the first MiB


FrameHook: TypeAlias = Callable[[Frame], Verdict]


@dataclass(frozen=True, slots=True, eq=False)
class Truncation:
    """So many more bytes, then the end. Two are never equal: each one starts a new count."""

    after: int
    ending: Ending

    def __post_init__(self) -> None:
        if self.after < 0:
            raise ConfigError(f"truncate: after must be 0 or more bytes, got {self.after}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The state of one direction. The default is a perfect network."""

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
                "to let nothing pass use black_hole()"
            )
        if self.max_bytes < 1:
            raise ConfigError(f"slice: max_bytes must be 1 or more, got {self.max_bytes}")

    def latency(self, luck: float) -> float:
        """Seconds on the way, for bytes that drew ``luck`` between 0 and 1."""
        return self.delay + self.jitter * luck

    def gap(self, size: int) -> float:
        """Seconds that must pass after a piece of this size before the next one."""
        return size / self.bytes_per_second + self.pause

    @property
    def piece(self) -> int:
        """The most bytes to hand on at once."""
        if self.bytes_per_second == math.inf:
            return min(self.max_bytes, CHUNK)
        return min(self.max_bytes, CHUNK, max(1, int(self.bytes_per_second * _THROTTLE_TICK)))
