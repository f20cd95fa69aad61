"""Middlewares: functions around the calls of handlers."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.invoke import Call, is_async
from asyncconsumer.handlers.partition_work import Item

CallNext: TypeAlias = Callable[[Context], Awaitable[Any]]
"""Call the next middleware, or the handler. The context may have another record or batch."""

Middleware: TypeAlias = Callable[[CallNext, Context], Awaitable[Any]]
"""An async function, or an object with an async ``__call__``, around each handler call.

It returns what `call_next` returns. If it does not call `call_next`, the record counts as
processed. If it raises an exception, the handler has failed.
"""


def checked(middlewares: object) -> tuple[Middleware, ...]:
    """Return middlewares as a tuple. Raise ConfigError for an object that is none."""
    if not isinstance(middlewares, Iterable):
        raise ConfigError(f"`middlewares` must be a list of them, got {middlewares!r}")
    each = tuple(middlewares)
    for middleware in each:
        if isinstance(middleware, type):
            raise ConfigError(
                f"{middleware.__qualname__} in `middlewares` is a class: pass an object of it"
            )
        if not is_async(middleware):
            raise ConfigError(
                f"{middleware!r} in `middlewares` is not an async function of call_next and context"
            )
        try:
            inspect.signature(middleware).bind(None, None)
        except TypeError as error:
            raise ConfigError(
                f"{middleware!r} in `middlewares` cannot be called with call_next and context: "
                f"{error}"
            ) from None
    return each


def with_middlewares(
    call: Call, middlewares: Sequence[Middleware], context_of: Callable[[Item], Context]
) -> Call:
    """Return a handler call with middlewares around it. The first one is the outermost."""
    if not middlewares:
        return call

    def handle(context: Context) -> Awaitable[Any]:
        return call(context.item)

    chain: CallNext = handle
    for middleware in reversed(middlewares):
        chain = partial(middleware, chain)
    return lambda item: chain(context_of(item))
