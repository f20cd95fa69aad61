"""Command line options that several commands have."""

from pathlib import Path
from typing import Annotated, Literal

import typer

ZooKeeper = Annotated[
    str | None, typer.Option(metavar="HOST:PORT[/CHROOT]", help="ZooKeeper connect string.")
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT,...",
        help="Bootstrap brokers. Default: the brokers that ZooKeeper lists.",
    ),
]
Storage = Annotated[
    Literal["zookeeper", "kafka", "dual"] | None,
    typer.Option(help="Where the group stores its offsets. Default: zookeeper."),
]
PropertiesFile = Annotated[
    Path | None,
    typer.Option(
        "--properties", metavar="FILE", help="A consumer.properties of the classic consumer."
    ),
]
Property = Annotated[
    list[str] | None,
    typer.Option(
        "--property", metavar="NAME=VALUE", help="One property of the classic consumer. Repeatable."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
