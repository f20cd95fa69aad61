"""The token provider for OAUTHBEARER, given by name because Spark options are strings."""

from importlib import import_module
from typing import Final

from aiokafka.abc import AbstractTokenProvider

from asyncconsumer.config.tokens import provider_of
from asyncconsumer.errors import ConfigError

PROPERTY: Final = "sasl.oauth.token.provider"
_WANTED: Final = (
    f"kafka.{PROPERTY} must be 'module:name' of a function without arguments that returns a token, "
    "or of an aiokafka.abc.AbstractTokenProvider, to be imported on the driver and on executors"
)


def token_provider(name: str) -> AbstractTokenProvider:
    """Import and return the provider that the property names."""
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
    if (provider := provider_of(found)) is None:
        raise ConfigError(f"{_WANTED}: {name!r} is a {type(found).__name__}")
    return provider
