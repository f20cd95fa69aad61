"""Exponential backoff with jitter."""

from collections.abc import Iterator
from random import Random


def backoff(first: float, longest: float, randomness: Random) -> Iterator[float]:
    """Yield waits that double from `first` to `longest`, each shortened randomly by up to 20%.

    The jitter keeps clients that lost the same broker at the same moment from reconnecting
    together.
    """
    wait = first
    while True:
        yield wait * randomness.uniform(0.8, 1.0)
        wait = min(wait * 2, longest)
