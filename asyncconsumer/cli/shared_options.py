"""Command line options that several commands have."""

from pathlib import Path
from typing import Annotated, Literal

import typer

ZooKeeper = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT[/CHROOT]",
        help="ZooKeeper connect string. Required here or in --properties.",
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT,...",
        help="Kafka brokers to connect to first. Default: the brokers registered in ZooKeeper.",
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
        help="Java properties file with options of the classic consumer. Options on the command "
        "line override it.",
    ),
]
Property = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="One option of the classic consumer, such as fetch.min.bytes=1. Repeatable. "
        "Passwords belong in --properties.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
