"""Command line options that several commands have."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from asyncconsumer.config.choices import CompressionType

ZooKeeper = Annotated[
    str | None,
    typer.Option(
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
