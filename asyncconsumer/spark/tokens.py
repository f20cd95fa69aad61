"""OAUTHBEARER: who makes the tokens. It is named by text, as everything is that Spark is told."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final

from aiokafka.abc import AbstractTokenProvider

from asyncconsumer.errors import ConfigError

PROPERTY: Final = "sasl.oauth.token.provider"
_WANTED: Final = (
    f"kafka.{PROPERTY} must be 'module:name' of a function without arguments that returns a token, "
    "or of an aiokafka.abc.AbstractTokenProvider, to be imported on the driver and on executors"
)


class _Calling(AbstractTokenProvider):
    """Tokens of a user's function; it may be async, and one that is not must not block the loop."""

    def __init__(self, call: Callable[[], Awaitable[str] | str]) -> None:
        self._call = call

    async def token(self) -> str:
        """A fresh one."""
        if inspect.iscoroutinefunction(self._call):
            made: Awaitable[str] | str = self._call()
        else:
            made = await asyncio.to_thread(self._call)
        return made if isinstance(made, str) else await made


def token_provider(name: str) -> AbstractTokenProvider:
    """What the property names; Java's classes that do the same cannot be run here."""
    if not name:
        raise ConfigError(
            f"kafka.sasl.mechanism OAUTHBEARER: Java's login modules and callback handlers cannot "
            f"be run here, and {_WANTED}"
        )
    module, _, path = name.partition(":")
    try:
        found: object = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{_WANTED}: {name!r} is not there ({error})") from None
    if isinstance(found, type) and issubclass(found, AbstractTokenProvider):
        found = found()
    if isinstance(found, AbstractTokenProvider):
        return found
    if not callable(found):
        raise ConfigError(f"{_WANTED}: {name!r} is a {type(found).__name__}")
    return _Calling(found)
