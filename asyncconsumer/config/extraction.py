"""Functions that make config objects from options by name."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.config.fetch import FetchConfig
from asyncconsumer.config.tls import refuse_tls_options
from asyncconsumer.config.validation import refuse_unknown
from asyncconsumer.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")

_VARIABLE = "ASYNCCONSUMER_BOOTSTRAP_SERVERS"


def check_together(connection: ConnectionConfig, fetch: FetchConfig) -> None:
    """Raise ConfigError if options are valid alone but conflict with each other."""
    if fetch.fetch_max_wait_ms >= connection.request_timeout_ms:
        raise ConfigError(
            f"`fetch_max_wait_ms` ({fetch.fetch_max_wait_ms}) must be less than "
            f"`request_timeout_ms` ({connection.request_timeout_ms}), because a fetch that waits "
            "would time out"
        )
    if fetch.fetch_max_bytes > connection.max_frame_bytes:
        raise ConfigError(
            f"`fetch_max_bytes` ({fetch.fetch_max_bytes}) must not be more than "
            f"`max_frame_bytes` ({connection.max_frame_bytes}), because larger responses are "
            "refused"
        )


def split(
    options: Mapping[str, Any], own: Iterable[str] = ()
) -> tuple[ConnectionConfig, FetchConfig]:
    """Return the connection and fetch configs for `options`.

    `own` are other options that the caller handles. Raise ConfigError for unknown options and for
    options that conflict.
    """
    check_names(options, own)
    remaining = without_none(options)
    connection, fetch = extract(remaining, ConnectionConfig), extract(remaining, FetchConfig)
    check_together(connection, fetch)
    return connection, fetch


def refuse_both(config: object, options: Mapping[str, object]) -> None:
    """Raise ConfigError if a caller passed both a config object and options."""
    if config is not None and options:
        names = ", ".join(f"`{name}`" for name in sorted(options))
        raise ConfigError(f"`config` cannot be combined with options, got {names} as well")


def check_names(options: Mapping[str, Any], own: Iterable[str]) -> None:
    """Raise ConfigError for an unknown option, or if `bootstrap_servers` is missing.

    `own` are names of other options that the caller handles.
    """
    refuse_tls_options(options)
    refuse_unknown(options, ConnectionConfig, FetchConfig, also=own)
    without_none(options)


def without_none(
    options: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the options that are not None. As in other clients, None means the default.

    Raise ConfigError if `bootstrap_servers` is missing.
    """
    remaining = {**(defaults or {}), **_with_value(options)}
    if "bootstrap_servers" not in remaining:
        hint = (
            f". {_VARIABLE} is set, but only `from_env(...)` reads it"
            if _VARIABLE in os.environ
            else f", or set {_VARIABLE} and use `from_env(...)`"
        )
        raise ConfigError(f"`bootstrap_servers` is missing. Name at least one as 'host:port'{hint}")
    return remaining


def _with_value(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def picking(
    kind: type[Config], defaults: Mapping[str, Any] | None = None, names: Iterable[str] = ()
) -> type[Config]:
    """Return a constructor of the config class `kind` that accepts options of all config classes.

    The constructor ignores options that are None or that `kind` does not have. If `names` are
    given, it ignores all others. `defaults` are the values of options that are not passed. For type
    checkers and editors the constructor is the class `kind`.
    """
    own = set(names) or {field.name for field in fields(kind)}

    def construct(**options: Any) -> Config:  # noqa: ANN401 - `kind` checks them
        picked = {name: options[name] for name in own & options.keys()}
        return kind(**{**(defaults or {}), **_with_value(picked)})

    return cast("type[Config]", construct)


def extract(options: dict[str, Any], kind: type[Config]) -> Config:
    """Return a config of the class `kind`, and remove the options of that class from `options`."""
    own = {field.name for field in fields(kind)} & options.keys()
    return kind(**{name: options.pop(name) for name in own})
