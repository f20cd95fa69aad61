"""How fast a handler comes to ends: what its health is judged by."""

from collections import deque
from typing import Final

_ENDS: Final = 3  # in time, until it is believed that it is well


class CompletionTimer:
    """Seconds from one end to the next while something is worked on; the last few count.

    One end alone says little: a handler that takes too long for each record would be well again
    with every record, and ill soon after.
    """

    __slots__ = ("_last", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._last: deque[float] = deque([0.0] * _ENDS, maxlen=_ENDS)

    def begin(self, now: float) -> None:
        """Something may be begun, and nothing was."""
        self._since = now

    def end(self, now: float) -> None:
        """Something came to its end, whatever that was."""
        self._last.append(now - self._since)
        self._since = now

    def longest(self, now: float) -> float:
        """The most of the last ones, and of what it has been since."""
        return max(now - self._since, *self._last)
