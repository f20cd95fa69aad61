"""How long to wait before the next try."""

from collections.abc import Iterator
from random import Random


def backoff(first: float, most: float, randomness: Random) -> Iterator[float]:
    """Waits that double from `first` to `most`, each shortened by chance, by a fifth at most.

    Chance keeps clients that lost the same broker at the same moment from coming back together.
    """
    wait = first
    while True:
        yield wait * randomness.uniform(0.8, 1.0)
        wait = min(wait * 2, most)
