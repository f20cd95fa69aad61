"""Calling a handler with a record or a batch: arguments, threads, timeouts."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from asyncconsumer.errors import HandlerTimedOut
from asyncconsumer.work.arguments import Read
from asyncconsumer.work.share import Item
from asyncconsumer.work.threads import Threads

Call: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Begins with an item: what it returns is awaited."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object, it may be `async`
    )


def caller(
    name: str,
    function: Callable[..., Any],
    reads: list[Read],
    *,
    batch: bool,
    timeout_ms: int | None,
    threads: Threads | None,
) -> Call:
    """What to call with each item. Only what is needed is done for each."""
    run: Callable[..., Awaitable[Any]] = function
    if threads is not None:
        run = partial(threads.run, function)
    call = _with_batch(run, reads) if batch else _with_record(run, reads)
    return call if timeout_ms is None else partial(_timed, call, name, timeout_ms)


def _with_record(run: Callable[..., Awaitable[Any]], reads: list[Read]) -> Call:
    """The commonest are written out: a call for each record is what a loop here would cost."""
    if len(reads) == 1:
        first = reads[0]
        return lambda record: run(first(record))
    if len(reads) == 2:
        first, second = reads
        return lambda record: run(first(record), second(record))
    return lambda record: run(*[read(record) for read in reads])


def _with_batch(run: Callable[..., Awaitable[Any]], reads: list[Read]) -> Call:
    return lambda records: run(*[[read(record) for record in records] for read in reads])


async def _timed(call: Call, name: str, milliseconds: int, item: Item) -> None:
    try:
        async with asyncio.timeout(milliseconds / 1000) as timeout:
            await call(item)
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise HandlerTimedOut(name, milliseconds) from error
