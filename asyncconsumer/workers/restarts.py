"""When a worker that has ended is started again."""

from random import Random
from typing import Final

from asyncconsumer.aio.backoff import backoff

_FIRST, _MOST = 0.5, 30.0  # seconds to wait
_LONG_ENOUGH: Final = 30.0  # seconds of life, after which its end is no part of what was before
_IN_A_ROW: Final = 5


class Restarts:
    """Waits grow while one end follows the other: a worker that cannot live must not cost much."""

    def __init__(self, randomness: Random) -> None:
        self._randomness = randomness
        self._delays = backoff(_FIRST, _MOST, randomness)
        self.in_a_row = 0

    @property
    def hopeless(self) -> bool:
        """It is tried again and again, and that is all."""
        return self.in_a_row >= _IN_A_ROW

    def after(self, lived: float) -> float:
        """Seconds to wait, after it has lived for so many."""
        if lived >= _LONG_ENOUGH:
            self.in_a_row = 0
            self._delays = backoff(_FIRST, _MOST, self._randomness)
        self.in_a_row += 1
        return next(self._delays)
