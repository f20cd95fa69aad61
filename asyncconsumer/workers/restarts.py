"""The delays before a worker that has ended is restarted."""

from random import Random
from typing import Final

from asyncconsumer.aio.backoff import backoff

_FIRST, _MOST = 0.5, 30.0  # seconds to wait
_LONG_ENOUGH: Final = 30.0  # seconds; a worker that ran longer resets the backoff
_IN_A_ROW: Final = 5


class Restarts:
    """A backoff for restarts, so that a worker that always fails uses few resources."""

    def __init__(self, randomness: Random) -> None:
        self._randomness = randomness
        self._delays = backoff(_FIRST, _MOST, randomness)
        self.in_a_row = 0

    @property
    def hopeless(self) -> bool:
        """Whether the worker ended at least 5 times in a row."""
        return self.in_a_row >= _IN_A_ROW

    def after(self, lived: float) -> float:
        """Return the seconds to wait before a restart, after a worker ran for `lived` seconds."""
        if lived >= _LONG_ENOUGH:
            self.in_a_row = 0
            self._delays = backoff(_FIRST, _MOST, self._randomness)
        self.in_a_row += 1
        return next(self._delays)
