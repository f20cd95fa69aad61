"""The time between handler completions, which shows whether a handler is stuck."""

from collections import deque
from typing import Final

_ENDS: Final = 3  # completions in time, after which a handler counts as healthy


class CompletionTimer:
    """The seconds between the last completions of handler calls, while items are processed.

    Several intervals are kept. With one, the health of a slow handler would change with every
    record.
    """

    __slots__ = ("_last", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._last: deque[float] = deque([0.0] * _ENDS, maxlen=_ENDS)

    def begin(self, now: float) -> None:
        """Start to measure at `now`, when an item becomes ready and no other one is running."""
        self._since = now

    def end(self, now: float, count: int = 1) -> None:
        """Note that `count` handler calls have completed since the last call, successful or not."""
        if count == 1:
            self._last.append(now - self._since)
        else:
            self._last.extend([(now - self._since) / count] * min(count, _ENDS))
        self._since = now

    def longest(self, now: float) -> float:
        """Return the longest of the last intervals and of the current, incomplete interval."""
        return max(now - self._since, *self._last)
