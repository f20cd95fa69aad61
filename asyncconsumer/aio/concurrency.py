"""Concurrent work on many items."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

from asyncconsumer.aio.start_task import start_task
from asyncconsumer.errors import ConsumerError

T = TypeVar("T")


async def each(
    things: Iterable[T], work: Callable[[T], Awaitable[None]], *, at_once: int = 500
) -> None:
    """Call `work` for each item, concurrently in groups of `at_once`, and raise the first error.

    All items are tried before the error is raised. A `TaskGroup` alone would cancel the others when
    one fails, and wrap the error in a group.
    """
    errors: list[ConsumerError] = []

    async def guarded(thing: T) -> None:
        try:
            await work(thing)
        except ConsumerError as error:
            errors.append(error)

    left = iter(things)
    while bunch := list(islice(left, at_once)):
        async with asyncio.TaskGroup() as group:
            for thing in bunch:
                start_task(group, guarded(thing))
    if errors:
        raise errors[0]
