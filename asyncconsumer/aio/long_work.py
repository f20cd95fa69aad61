"""Long work on the event loop, in pieces between which other tasks run."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

_A_PIECE: Final = 1_000  # items, which take some microseconds each


async def in_pieces(steps: Iterable[T], *, size: int = _A_PIECE) -> AsyncIterator[T]:
    """Yield the same items, and let other tasks run after each `size` of them.

    Each step of `steps` should be short, and the caller should iterate to the end.
    """
    remaining = iter(steps)
    while piece := list(islice(remaining, size)):
        for one in piece:
            yield one
        if len(piece) == size:
            await asyncio.sleep(0)
