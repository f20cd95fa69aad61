"""Functions that process many items without blocking the event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

from asyncconsumer.aio.start_task import start_task
from asyncconsumer.errors import ConsumerError

T = TypeVar("T")

_CHUNK: Final = 1_000  # items, which take some microseconds each


async def for_each(
    items: Iterable[T], work: Callable[[T], Awaitable[None]], *, limit: int = 500
) -> None:
    """Call `work` for each item, concurrently in groups of `limit`. Then raise the first error.

    All items are processed, even if `work` raises a `ConsumerError` for some. A `TaskGroup` alone
    would cancel the other calls, and wrap the error in a group.
    """
    errors: list[ConsumerError] = []

    async def guarded(item: T) -> None:
        try:
            await work(item)
        except ConsumerError as error:
            errors.append(error)

    remaining = iter(items)
    while chunk := list(islice(remaining, limit)):
        async with asyncio.TaskGroup() as group:
            for item in chunk:
                start_task(group, guarded(item))
    if errors:
        raise errors[0]


async def in_chunks(items: Iterable[T], *, size: int = _CHUNK) -> AsyncIterator[T]:
    """Yield the items unchanged. After each `size` items, let other tasks run.

    The caller should do little work per item, because the event loop is blocked for `size` items.
    It should also iterate to the end.
    """
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        for item in chunk:
            yield item
        if len(chunk) == size:
            await asyncio.sleep(0)
