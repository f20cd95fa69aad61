"""Command line options that several commands have."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from asyncconsumer.config.choices import CompressionType
from asyncconsumer.errors import ConfigError

ZOOKEEPER_PANEL: Final = "Groups in ZooKeeper"
"""The heading of options in help texts that only groups in ZooKeeper have."""

ZooKeeper = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ZOOKEEPER_PANEL,
        metavar="HOST:PORT[/CHROOT]",
        help="ZooKeeper connect string, for groups that ZooKeeper coordinates.",
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT,...",
        help="Kafka brokers to connect to first. Default: $ASYNCCONSUMER_BOOTSTRAP_SERVERS, or the "
        "brokers registered in ZooKeeper.",
    ),
]
Storage = Annotated[
    Literal["zookeeper", "kafka", "dual"] | None,
    typer.Option(
        rich_help_panel=ZOOKEEPER_PANEL,
        help="Where the group stores its offsets; dual is both. Default: zookeeper.",
    ),
]
PropertiesFile = Annotated[
    Path | None,
    typer.Option(
        "--properties",
        metavar="FILE",
        help="Java properties file with options, such as security.protocol and passwords. Options "
        "on the command line override it.",
    ),
]
Property = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="One option, such as security.protocol=SSL. Repeatable. "
        "Passwords belong in --properties.",
    ),
]
Compression = Annotated[
    CompressionType | None,
    typer.Option("--compression", "-z", help="Compression of batches. Default: none."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Raise ConfigError if one of these options is set, because it would have no effect."""
    for name, value in options.items():
        if value is not None and value is not False and value != []:
            raise ConfigError(f"{name} {reason}.")


def refuse_password(
    context: typer.Context, parameter: typer.CallbackParam, url: str | None
) -> str | None:
    """Return `url`. Raise ConfigError if it is on the command line and contains a password.

    All users of a machine can see command lines. The error does not repeat the URL.
    """
    assert parameter.name is not None
    source = context.get_parameter_source(parameter.name)
    is_visible = source is not None and source.name == "COMMANDLINE"
    if url and is_visible and any(_has_login(part) for part in url.split(",")):
        raise ConfigError(
            f"--{parameter.name} has a login, and other users can see a command line. Set the "
            f"variable {parameter.envvar} in its place."
        )
    return url


def _has_login(url: str) -> bool:
    return "@" in url.partition("://")[2].partition("/")[0]
