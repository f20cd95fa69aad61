"""The options of a reader, which belong to several configs."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.config.fetch import FetchConfig
from asyncconsumer.config.tls_options import refuse_tls_options
from asyncconsumer.config.validation import refuse_unknown
from asyncconsumer.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")


def check_together(connection: ConnectionConfig, fetch: FetchConfig) -> None:
    """Raise for options that are each fine and do not go together."""
    if fetch.fetch_max_wait_ms >= connection.request_timeout_ms:
        raise ConfigError(
            f"fetch_max_wait_ms ({fetch.fetch_max_wait_ms}) must be less than request_timeout_ms "
            f"({connection.request_timeout_ms}): a fetch that waits would be taken for lost"
        )
    if fetch.fetch_max_bytes > connection.max_frame_bytes:
        raise ConfigError(
            f"fetch_max_bytes ({fetch.fetch_max_bytes}) must not be more than max_frame_bytes "
            f"({connection.max_frame_bytes}), which answers may have at the most"
        )


def split(
    options: Mapping[str, Any], own: Iterable[str] = ()
) -> tuple[ConnectionConfig, FetchConfig]:
    """The configs that a reader's options make up; `own` are those that the reader itself has.

    Raises for an option that none of them has, and for options that do not go together.
    """
    check_names(options, own)
    left = given(options)
    connection, fetch = take(left, ConnectionConfig), take(left, FetchConfig)
    check_together(connection, fetch)
    return connection, fetch


def check_names(options: Mapping[str, Any], own: Iterable[str]) -> None:
    """Raise for a name of which a reader has no option, or if there are no servers."""
    refuse_tls_options(options)
    refuse_unknown(options, ConnectionConfig, FetchConfig, also=own)
    given(options)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those that have a value: None stands for the default, as with other clients.

    Raises if there are no servers.
    """
    left = {name: value for name, value in options.items() if value is not None}
    if "bootstrap_servers" not in left:
        raise ConfigError("bootstrap_servers is missing: name at least one as 'host:port'")
    return left


def take(options: dict[str, Any], kind: type[Config]) -> Config:
    """A config made of those options that are its own; they are taken out of `options`."""
    own = {field.name for field in fields(kind)} & options.keys()
    return kind(**{name: options.pop(name) for name in own})
