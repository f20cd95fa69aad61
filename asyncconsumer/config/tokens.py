"""The token providers for OAUTHBEARER: objects with aiokafka's interface, and user functions."""

import inspect
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TypeAlias

from asyncconsumer.aio.threads import call_in_daemon_thread
from asyncconsumer.aiokafka_parts import AbstractTokenProvider
from asyncconsumer.errors import ConfigError

TokenSource: TypeAlias = AbstractTokenProvider | Callable[[], Awaitable[str] | str]
"""A token provider, or a sync or async function without arguments that returns a token."""


class FunctionTokenProvider(AbstractTokenProvider):
    """A token provider that calls a function. A function that is not async runs in a thread."""

    def __init__(self, function: Callable[[], Awaitable[str] | str]) -> None:
        self._function = function

    async def token(self) -> str:
        """Return a new token."""
        if inspect.iscoroutinefunction(self._function):
            token: object = await self._function()
        else:
            token = await call_in_daemon_thread("asyncconsumer token", self._function)
            if inspect.isawaitable(token):
                token = await token
        if not isinstance(token, str):
            raise TypeError(
                f"a token must be a str, but {self._function!r} returned {type(token).__name__}"
            )
        return token


def import_token_source(rule: str, name: str) -> object:
    """Import and return the object that `name` describes as "module:attribute".

    Error messages begin with `rule`.
    """
    module, _, path = name.partition(":")
    try:
        value: object = import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{rule}. {name!r} cannot be imported: {error}") from None
    return value


def provider_of(source: object) -> AbstractTokenProvider | None:
    """Return a token provider that uses `source`, or None if `source` is not a `TokenSource`."""
    if isinstance(source, type) and issubclass(source, AbstractTokenProvider):
        source = source()
    if isinstance(source, AbstractTokenProvider):
        return source
    return FunctionTokenProvider(source) if callable(source) else None
