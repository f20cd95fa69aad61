"""Who makes the tokens of OAUTHBEARER: an aiokafka provider, or a function of the user's."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiokafka.abc import AbstractTokenProvider

TokenSource: TypeAlias = AbstractTokenProvider | Callable[[], Awaitable[str] | str]
"""A function takes no arguments and returns a token. It may be async."""


class FunctionTokenProvider(AbstractTokenProvider):
    """Tokens of a function. A function that is not async runs in a thread, as it may block."""

    def __init__(self, function: Callable[[], Awaitable[str] | str]) -> None:
        self._function = function

    async def token(self) -> str:
        """A fresh token."""
        if inspect.iscoroutinefunction(self._function):
            made: object = await self._function()
        else:
            made = await asyncio.to_thread(self._function)
            if inspect.isawaitable(made):
                made = await made
        if not isinstance(made, str):
            raise TypeError(f"a token must be a str, and {self._function!r} returned {type(made)}")
        return made


def provider_of(source: object) -> AbstractTokenProvider | None:
    """The provider that a source of tokens stands for; None if it is no source of tokens."""
    if isinstance(source, type) and issubclass(source, AbstractTokenProvider):
        source = source()
    if isinstance(source, AbstractTokenProvider):
        return source
    return FunctionTokenProvider(source) if callable(source) else None
