"""The delays before a worker is restarted."""

from random import Random
from typing import Final

from asyncconsumer.aio.backoff import backoff

_MIN_DELAY, _MAX_DELAY = 0.5, 30.0  # seconds
_STABLE_AFTER: Final = 30.0  # seconds; a worker that ran longer resets the backoff
_MAX_IN_A_ROW: Final = 5


class Restarts:
    """The backoff of the restarts of a worker, which may fail each time at once."""

    def __init__(self, randomness: Random) -> None:
        self._randomness = randomness
        self._delays = backoff(_MIN_DELAY, _MAX_DELAY, randomness)
        self.in_a_row = 0

    @property
    def failing(self) -> bool:
        """Whether the worker has ended 5 times or more, with runs of less than 30 s in between."""
        return self.in_a_row >= _MAX_IN_A_ROW

    def next_delay(self, lived: float) -> float:
        """Return the seconds to wait before a restart. The last worker ran for `lived` seconds."""
        if lived >= _STABLE_AFTER:
            self.in_a_row = 0
            self._delays = backoff(_MIN_DELAY, _MAX_DELAY, self._randomness)
        self.in_a_row += 1
        return next(self._delays)
