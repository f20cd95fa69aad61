"""The declaration of handlers with a decorator."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.batches import Batch
from asyncconsumer.handlers.handler import (
    Handler,
    HandlerOptions,
    OnError,
    Ordering,
    check_apart,
    declared,
)
from asyncconsumer.handlers.retry import Retry

F = TypeVar("F", bound=Callable[..., Any])


class Declarations:
    """A base class with the decorator that declares handlers."""

    def __init__(self) -> None:
        self._handlers: list[Handler] = []

    def handler(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        ordering: Ordering = "key",
        concurrency: int = 100,
        batch: Batch | None = None,
        retry: Retry | None = None,
        dead_letter_topic: str | None = None,
        on_error: OnError = "stop",
        handler_timeout_ms: int | None = None,
        max_in_flight: int | None = None,
        max_in_flight_bytes: int = 64 * 2**20,
    ) -> Callable[[F], F]:
        """Declare a function as the handler of topics. See `HandlerOptions` for the options.

        The parameters of the function select its arguments. A parameter annotated as `Record` gets
        the record, `key` gets the key and `headers` gets the headers. Any other parameter gets the
        value, deserialized to the annotated type.
        """
        if topics and callable(topics[0]):
            raise ConfigError("name the topics of a handler: @app.handler('topic')")
        how = HandlerOptions(
            ordering=ordering,
            concurrency=concurrency,
            batch=batch,
            retry=retry,
            dead_letter_topic=dead_letter_topic,
            on_error=on_error,
            handler_timeout_ms=handler_timeout_ms,
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
        )

        def declare(function: F) -> F:
            self._declare(declared(function, topics, pattern, how))
            return function

        return declare

    def _declare(self, handler: Handler) -> None:
        """Add a handler. Raise ConfigError if it reads a topic of another handler."""
        for other in self._handlers:
            check_apart(other, handler)
        self._handlers.append(handler)
