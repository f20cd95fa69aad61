"""Middlewares: functions around the calls of handlers, and around the records that they publish."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.invoke import CallHandler, is_async
from asyncconsumer.handlers.outgoing import PublishMiddleware, begin_call
from asyncconsumer.handlers.partition_work import Item

CallNext: TypeAlias = Callable[[Context], Awaitable[Any]]
"""A function that calls the next middleware, or the handler.

The context that it gets may have another record or batch than the original one.
"""

Middleware: TypeAlias = Callable[[CallNext, Context], Awaitable[Any]] | PublishMiddleware
"""An async function of `call_next` and a `Context`, or an object with one or both of these methods.

``async def __call__(self, call_next, context)`` is called around each handler call, and returns
what `call_next` returns. If it does not call `call_next`, the record counts as processed. If it
raises an exception, the handler has failed. The results of the handler are published before
`call_next` returns.

``async def publish(self, call_next, record)`` is called around each record that the handler
publishes, see `PublishMiddleware`.
"""


def checked(middlewares: object) -> tuple[Middleware, ...]:
    """Return middlewares as a tuple. Raise ConfigError for an object that is no middleware."""
    if not isinstance(middlewares, Iterable):
        raise ConfigError(f"`middlewares` must be a list of them, got {middlewares!r}")
    each = tuple(middlewares)
    for middleware in each:
        if isinstance(middleware, type):
            raise ConfigError(
                f"{middleware.__qualname__} in `middlewares` is a class: pass an object of it"
            )
        publish = getattr(middleware, "publish", None)
        if publish is not None:
            _check(publish, f"`publish` of {middleware!r}", "call_next and record")
        if publish is None or callable(middleware):
            _check(middleware, repr(middleware), "call_next and context")
    return each


def _check(function: Any, name: str, arguments: str) -> None:  # noqa: ANN401 - any object
    if not (callable(function) and is_async(function)):
        raise ConfigError(f"{name} in `middlewares` is not an async function of {arguments}")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise ConfigError(
            f"{name} in `middlewares` cannot be called with {arguments}: {error}"
        ) from None


def around_publish(middlewares: Iterable[Middleware]) -> list[PublishMiddleware]:
    """Return the middlewares that have a method `publish`."""
    return [each for each in middlewares if hasattr(each, "publish")]


def with_middlewares(
    call: CallHandler, middlewares: Sequence[Middleware], context_of: Callable[[Item], Context]
) -> CallHandler:
    """Return a function that calls the middlewares around the handler call `call`.

    The first middleware is the outermost.
    """
    if not middlewares:
        return call

    publishing = bool(around_publish(middlewares))

    def handle(context: Context) -> Awaitable[Any]:
        if publishing:
            begin_call(context)
        return call(context.item)

    chain: CallNext = handle
    for middleware in reversed(middlewares):
        if callable(middleware):
            chain = partial(middleware, chain)
    return lambda item: chain(context_of(item))
