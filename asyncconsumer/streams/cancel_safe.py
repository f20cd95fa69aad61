"""An async iterator that outlives a wait that was given up; a generator would have ended."""

from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class CancelSafeIterator(Generic[T]):
    """Asks for one thing after the other, until there is none."""

    def __init__(self, take: Callable[[], Awaitable[T | None]]) -> None:
        self._take = take
        self.in_hand = False  # something was handed out, and nothing asked for since

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """The next one. Who gives up waiting for it, or is timed out, can ask again."""
        self.in_hand = False
        found = await self._take()
        if found is None:
            raise StopAsyncIteration
        self.in_hand = True
        return found
