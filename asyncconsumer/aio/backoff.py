"""Exponential backoff with jitter."""

from collections.abc import Iterator
from random import Random


def backoff(first: float, longest: float, randomness: Random) -> Iterator[float]:
    """Yield delays in seconds, forever, that double from `first` up to `longest`.

    Each delay is shortened at random by up to 20%. So clients that lost the same broker at the same
    moment do not reconnect together.
    """
    wait = first
    while True:
        yield wait * randomness.uniform(0.8, 1.0)
        wait = min(wait * 2, longest)
