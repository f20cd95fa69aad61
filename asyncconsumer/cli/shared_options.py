"""Options that several commands have, as they are typed."""

from pathlib import Path
from typing import Annotated, Literal

import typer

ZooKeeper = Annotated[
    str | None, typer.Option(metavar="HOST:PORT[/CHROOT]", help="Where groups meet.")
]
Bootstrap = Annotated[
    str | None, typer.Option(metavar="HOST:PORT,...", help="Brokers, if ZooKeeper names none.")
]
Storage = Annotated[
    Literal["zookeeper", "kafka", "dual"] | None,
    typer.Option(help="Where the group keeps its offsets: zookeeper, unless told otherwise."),
]
PropertiesFile = Annotated[
    Path | None,
    typer.Option(
        "--properties", metavar="FILE", help="A consumer.properties of the classic consumer."
    ),
]
Property = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="One of them; may be given again."),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one line of JSON.")]
