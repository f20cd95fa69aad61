"""The connection options that commands share, and the admin client that they open."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from asyncconsumer.admin.admin import Admin
from asyncconsumer.cli.properties import merge_properties
from asyncconsumer.cli.signals import log_zookeeper_retries
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.config.choices import CompressionType
from asyncconsumer.config.external import ExternalOptions, convert_settings
from asyncconsumer.config.option_docs import option_docs
from asyncconsumer.config.options import ProducerOptions
from asyncconsumer.config.setting import Setting
from asyncconsumer.errors import ConfigError

_ZOOKEEPER: Final = (
    "zookeeper_connect",
    "zookeeper_auth",
    "zookeeper_sasl",
    "zookeeper_ssl_context",
)
_CONNECTION: Final = tuple(field.name for field in fields(ConnectionConfig))


def read_options(
    bootstrap_servers: str | None,
    zookeeper: str | None,
    properties: Path | None,
    assignments: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Return the options from all sources.

    The first source that sets an option applies: the arguments `bootstrap_servers` and `zookeeper`,
    `assignments` (--property), the file `properties`, environment variables.
    """
    servers = {"bootstrap.servers": bootstrap_servers, "zookeeper.connect": zookeeper}
    merged = merge_properties(properties, assignments or (), servers)
    settings = [Setting(name, value, f"option {name}") for name, value in merged.items()]
    options = ExternalOptions.read({}).options
    options |= {name: setting.value for name, setting in convert_settings(settings).items()}
    return options


def connection_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the connection options among `options`. Raise ConfigError without an address."""
    selected = {name: value for name, value in options.items() if name in _CONNECTION}
    if not selected.get("bootstrap_servers"):
        raise ConfigError(
            "No broker is known. Set -b HOST:PORT, or the environment variable "
            "ASYNCCONSUMER_BOOTSTRAP_SERVERS."
        )
    return selected


def producer_options(
    options: dict[str, Any], compression: CompressionType | None
) -> dict[str, Any]:
    """Return the producer options among `options`. Raise ConfigError without an address.

    Consumer options are left out, because one properties file may serve consumers and producers.
    `compression` overrides the option, unless it is None.
    """
    names = option_docs(ProducerOptions)
    selected = connection_options(options)
    selected |= {name: value for name, value in options.items() if name in names}
    return selected if compression is None else selected | {"compression_type": compression}


def admin_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an admin client. Raise `ConfigError` without an address."""
    selected = {
        name: value for name, value in options.items() if name in (*_CONNECTION, *_ZOOKEEPER)
    }
    if not selected.get("bootstrap_servers") and not selected.get("zookeeper_connect"):
        connection_options(options)  # raises the error about the missing address
    return selected


def make_admin(options: dict[str, Any]) -> Admin:
    """Return an admin client with these options."""
    log_zookeeper_retries(enabled=False)
    return Admin(**admin_options(options))
