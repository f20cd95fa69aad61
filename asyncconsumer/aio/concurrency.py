"""The same for many things, side by side."""

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
    """Do it for each of them, so many at once. All are tried; then the first error is raised.

    A TaskGroup alone would end the others when one fails, and wrap the error in a group.
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
