"""`asyncconsumer groups`, as it is typed."""

from typing import Annotated, Literal

import typer

from asyncconsumer.cli import group_changes, groups
from asyncconsumer.cli.group_changes import Consent
from asyncconsumer.cli.reach import Servers
from asyncconsumer.cli.running import until_stopped

groups_app = typer.Typer(
    help="Consumer groups in ZooKeeper: who reads what, how far, and from where to go on.",
    no_args_is_help=True,
)

Group = Annotated[str, typer.Argument(metavar="GROUP")]
ZooKeeper = Annotated[str, typer.Option(metavar="HOST:PORT[/CHROOT]", help="Where groups meet.")]
Bootstrap = Annotated[
    str | None, typer.Option(metavar="HOST:PORT,...", help="Brokers, if ZooKeeper names none.")
]
Storage = Annotated[
    Literal["zookeeper", "kafka", "dual"], typer.Option(help="Where the group keeps its offsets.")
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one line of JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Carry out the plan that is shown.")]
Force = Annotated[bool, typer.Option("--force", help="Though the group has live members.")]


@groups_app.command("list")
def list_groups(*, zookeeper: ZooKeeper, json: Json = False) -> None:
    """All groups, and how many live members each has."""
    servers = Servers(zookeeper=zookeeper)
    until_stopped(lambda: groups.list_groups(servers, as_json=json))


@groups_app.command()
def describe(
    group: Group,
    *,
    zookeeper: ZooKeeper,
    bootstrap_servers: Bootstrap = None,
    offsets_storage: Storage = "zookeeper",
    json: Json = False,
) -> None:
    """Partitions, offsets, lag and owners of a group, and its members."""
    servers = Servers(zookeeper=zookeeper, bootstrap_servers=bootstrap_servers)
    until_stopped(lambda: groups.describe(servers, group, offsets_storage, as_json=json))


@groups_app.command()
def reset(
    group: Group,
    *,
    zookeeper: ZooKeeper,
    topic: Annotated[
        list[str], typer.Option(metavar="TOPIC[:PARTITION,...]", help="May be given again.")
    ],
    to: Annotated[
        str, typer.Option(metavar="earliest|latest|OFFSET|+N|-N|TIME", help="Where to go on.")
    ],
    bootstrap_servers: Bootstrap = None,
    offsets_storage: Storage = "zookeeper",
    yes: Yes = False,
    force: Force = False,
) -> None:
    """Set the offsets of a group: the plan first, then, with --yes, the change.

    +N and -N count from the committed offset. A time has its zone: 2024-05-31T12:00:00Z.
    """
    servers = Servers(zookeeper=zookeeper, bootstrap_servers=bootstrap_servers)
    consent = Consent(yes=yes, force=force)
    until_stopped(lambda: group_changes.reset(servers, group, topic, to, offsets_storage, consent))


@groups_app.command()
def migrate(
    group: Group,
    *,
    zookeeper: ZooKeeper,
    source: Annotated[Literal["zookeeper", "kafka"], typer.Option("--from")],
    destination: Annotated[Literal["zookeeper", "kafka"], typer.Option("--to")],
    bootstrap_servers: Bootstrap = None,
    yes: Yes = False,
    force: Force = False,
) -> None:
    """Copy the offsets of a group to the other store, where that is not further already."""
    servers = Servers(zookeeper=zookeeper, bootstrap_servers=bootstrap_servers)
    consent = Consent(yes=yes, force=force)
    until_stopped(lambda: group_changes.migrate(servers, group, source, destination, consent))
