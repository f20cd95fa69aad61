"""The declaration of handlers with a decorator."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.batches import Batch
from asyncconsumer.handlers.handler import (
    Handler,
    HandlerOptions,
    OnError,
    OrderingName,
    check_apart,
    declared,
)
from asyncconsumer.handlers.middleware import Middleware, checked
from asyncconsumer.handlers.publishing import Publish
from asyncconsumer.handlers.retry import Retry

F = TypeVar("F", bound=Callable[..., Any])


class Declarations:
    """A base class with the decorator that declares handlers."""

    def __init__(self, *, prefix: str = "", middlewares: Iterable[Middleware] = ()) -> None:
        self._handlers: list[Handler] = []
        self._outer = prefix, checked(middlewares)  # for all handlers declared here

    def handler(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        ordering: OrderingName = "key",
        concurrency: int = 100,
        batch: Batch | None = None,
        retry: Retry | None = None,
        dead_letter_topic: str | None = None,
        on_error: OnError = "stop",
        handler_timeout_ms: int | None = None,
        max_in_flight: int | None = None,
        max_in_flight_bytes: int = 64 * 2**20,
        priorities: Mapping[str, int] | None = None,
        middlewares: Iterable[Middleware] = (),
        publish: Publish | str | None = None,
    ) -> Callable[[F], F]:
        """Declare a function as the handler of topics. See `HandlerOptions` for the options.

        The parameters of the function select its arguments. A parameter annotated as `Record` gets
        the record, `key` gets the key and `headers` gets the headers. Any other parameter gets the
        value, deserialized to the annotated type.
        """
        if topics and callable(topics[0]):
            raise ConfigError("name the topics of a handler: @app.handler('topic')")
        options = HandlerOptions(
            ordering=ordering,
            concurrency=concurrency,
            batch=batch,
            retry=retry,
            dead_letter_topic=dead_letter_topic,
            on_error=on_error,
            handler_timeout_ms=handler_timeout_ms,
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
            priorities={} if priorities is None else priorities,
            middlewares=checked(middlewares),
            publish=publish,
        )

        def declare(function: F) -> F:
            handler = declared(function, topics, pattern, options)
            self._declare(handler.included(*self._outer))
            return function

        return declare

    def include(self, router: "Router", *, prefix: str = "") -> None:
        """Add the handlers of a router, with `prefix` before the names of their topics.

        The middlewares of this object are called around the middlewares of the router.
        """
        if not isinstance(router, Router):
            raise ConfigError(f"include() takes a Router, got {router!r}")
        if router is self:
            raise ConfigError("a router cannot include itself")
        own_prefix, middlewares = self._outer
        for handler in router.close():
            self._declare(handler.included(own_prefix + prefix, middlewares))

    def _declare(self, handler: Handler) -> None:
        """Add a handler. Raise ConfigError if it reads a topic of another handler."""
        for other in self._handlers:
            check_apart(other, handler)
        self._handlers.append(handler)


class Router(Declarations):
    """Handlers for apps to include, such as those of one module.

    `prefix` is put before the names of all topics of the handlers: those that they read, their
    retry topics and their dead letter topics. `middlewares` are called around each handler.
    A router may be included several times, with different prefixes, and in other routers.
    """

    def __init__(self, *, prefix: str = "", middlewares: Iterable[Middleware] = ()) -> None:
        super().__init__(prefix=prefix, middlewares=middlewares)
        self._closed = False

    def close(self) -> Sequence[Handler]:
        """Return the handlers, and accept no more. A later handler would never be called."""
        self._closed = True
        return self._handlers

    def _declare(self, handler: Handler) -> None:
        if self._closed:
            raise ConfigError(
                f"handler {handler.name} is declared after its router was included: declare the "
                "handlers of a router before include()"
            )
        super()._declare(handler)
