"""An async iterator that can be used after a cancelled wait. A cancelled generator would end."""

from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class CancelSafeIterator(Generic[T]):
    """An async iterator that calls and awaits a function for each item.

    The iterator ends when the function returns None.
    """

    def __init__(self, take: Callable[[], Awaitable[T | None]]) -> None:
        self._take = take
        self.in_flight = False  # an item was delivered, and no other was requested since

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Return the next item. A caller that is cancelled or timed out can ask again."""
        self.in_flight = False
        item = await self._take()
        if item is None:
            raise StopAsyncIteration
        self.in_flight = True
        return item
