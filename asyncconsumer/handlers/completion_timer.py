"""The time between handler completions, which shows whether a handler is stuck."""

from collections import deque
from typing import Final

_ENDS: Final = 3  # how many intervals are kept


class CompletionTimer:
    """The last intervals between completions of handler calls, in seconds.

    Time without a record to process does not count. Several intervals are kept, because with a
    single one, the health of a slow handler would change with every record.
    """

    __slots__ = ("_last", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._last: deque[float] = deque([0.0] * _ENDS, maxlen=_ENDS)

    def begin(self, now: float) -> None:
        """Start to measure at `now`, because an item became ready while none was running."""
        self._since = now

    def end(self, now: float, count: int = 1) -> None:
        """Note that `count` handler calls have ended since the last call of this method."""
        if count == 1:
            self._last.append(now - self._since)
        else:
            self._last.extend([(now - self._since) / count] * min(count, _ENDS))
        self._since = now

    def longest(self, now: float) -> float:
        """Return the longest of the kept intervals and the current, incomplete one, in seconds."""
        return max(now - self._since, *self._last)
