"""The call of a handler with a record or a batch, with its arguments, threads and timeouts."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType
from typing import Any, TypeAlias

from asyncconsumer.errors import HandlerTimedOut
from asyncconsumer.handlers.arguments import Argument
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.injection import ContextCall, injected
from asyncconsumer.handlers.partition_work import Item
from asyncconsumer.handlers.threads import HandlerThreads
from asyncconsumer.records.decoding import PartsCall, Record

Read: TypeAlias = Callable[[Record], Any]
CallHandler: TypeAlias = Callable[[Any], Awaitable[Any]]
"""A function that starts a handler call for a record or batch, and returns an awaitable."""


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling `function` returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - that of an object may be async
    )


def caller(
    name: str,
    function: Callable[..., Any],
    arguments: list[Argument],
    *,
    batch: bool,
    timeout_ms: int | None,
    threads: HandlerThreads | None,
    context_of: Callable[[Item], Context] | None = None,
) -> CallHandler:
    """Return the function that calls a handler with an item (a record or a batch).

    The function has only the steps that this handler needs, because it runs for each record.
    """
    run: Callable[..., Awaitable[Any]] = function
    if threads is not None:
        run = partial(threads.run, function)
    reads = [argument.read for argument in arguments]
    if any(argument.inject or argument.keyword for argument in arguments):
        assert context_of is not None
        call: CallHandler = partial(_in_context, injected(run, arguments, batch=batch), context_of)
    elif any(argument.waits for argument in arguments):
        call = _waiting(run, reads, batch=batch)
    else:
        call = _with_batch(run, reads) if batch else PartsCall(run, reads)
    if timeout_ms is not None:
        call = partial(_timed, call, name, timeout_ms)
    return call if threads is None else partial(_with_room, call, threads)


def _in_context(
    call: ContextCall, context_of: Callable[[Item], Context], item: Item
) -> Awaitable[Any]:
    return call(context_of(item))


def _with_batch(run: Callable[..., Awaitable[Any]], reads: list[Read]) -> CallHandler:
    return lambda records: run(*[[read(record) for record in records] for read in reads])


def _waiting(
    run: Callable[..., Awaitable[Any]], reads: list[Read], *, batch: bool
) -> Callable[[Any], Awaitable[Any]]:
    """Return a function that awaits the deserialized arguments before it calls the handler.

    A deserializer may have to wait, for example for a schema registry.
    """

    async def made(read: Read, record: Record) -> Any:  # noqa: ANN401 - any value
        value = read(record)
        return await value if isinstance(value, CoroutineType) else value

    async def one_record(record: Record) -> Any:  # noqa: ANN401 - what the handler returns
        return await run(*[await made(read, record) for read in reads])

    async def many(records: list[Record]) -> Any:  # noqa: ANN401 - what the handler returns
        return await run(*[[await made(read, record) for record in records] for read in reads])

    return many if batch else one_record


async def _timed(call: CallHandler, name: str, milliseconds: int, item: Item) -> Any:  # noqa: ANN401
    try:
        async with asyncio.timeout(milliseconds / 1000) as timeout:
            result = await call(item)
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise HandlerTimedOut(name, milliseconds) from error
    if timeout.expired():  # the handler was cancelled and returned, maybe too early
        raise HandlerTimedOut(name, milliseconds)
    return result


async def _with_room(call: CallHandler, threads: HandlerThreads, item: Item) -> Any:  # noqa: ANN401
    """Wait for a free thread, then call the handler. The wait does not count for the timeout."""
    await threads.room()
    return await call(item)
