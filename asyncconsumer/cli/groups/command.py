"""The command line options of `asyncconsumer groups`."""

from typing import Annotated, Literal

import typer

from asyncconsumer.cli.groups import changes, listing
from asyncconsumer.cli.groups.changes import Confirmation
from asyncconsumer.cli.properties import make_config, merge_properties, storage_properties
from asyncconsumer.cli.shared_options import Bootstrap, Json, PropertiesFile, Storage, ZooKeeper
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.config import ClassicConfig

groups_app = typer.Typer(
    help="Show consumer groups in ZooKeeper with members, offsets and lag, and reset offsets.",
    no_args_is_help=True,
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
Store = Literal["zookeeper", "kafka"]
Yes = Annotated[
    bool, typer.Option("--yes", help="Apply the plan. Default: print it and exit with code 1.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Change offsets even if the group has live members. They may overwrite the change.",
    ),
]


def _config(
    group: str,
    zookeeper: str | None,
    properties: PropertiesFile,
    bootstrap_servers: str | None = None,
    storage: str | None = None,
) -> ClassicConfig:
    options = {
        "group.id": group,
        "zookeeper.connect": zookeeper,
        "bootstrap.servers": bootstrap_servers,
        **storage_properties(storage),
    }
    return make_config(merge_properties(properties, (), options))


@groups_app.command("list")
def list_groups(
    *, zookeeper: ZooKeeper = None, properties: PropertiesFile = None, json: Json = False
) -> None:
    """List all groups in ZooKeeper with the number of live members of each."""
    config = _config("unused", zookeeper, properties)
    run_until_stopped(lambda: listing.list_groups(config, as_json=json))


@groups_app.command()
def describe(
    group: Group,
    *,
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    offsets_storage: Storage = None,
    properties: PropertiesFile = None,
    json: Json = False,
) -> None:
    """Show the partitions of a group with committed offset, lag in records, and owner.

    Lag is the number of offsets between the committed offset and the end of the log.
    """
    config = _config(group, zookeeper, properties, bootstrap_servers, offsets_storage)
    run_until_stopped(lambda: listing.describe(config, as_json=json))


@groups_app.command()
def reset(
    group: Group,
    *,
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC[:PARTITION,...]",
            help="Topic to reset, or some of its partitions, such as orders:0,3. Repeatable.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="TARGET",
            help="The new offset: earliest, latest, a number, +N or -N from the committed offset, "
            "or a time with its zone, such as 2024-05-31T12:00:00Z.",
        ),
    ],
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    offsets_storage: Storage = None,
    properties: PropertiesFile = None,
    yes: Yes = False,
    force: Force = False,
) -> None:
    """Set the committed offsets of a group. Without --yes, only print the plan.

    A time selects the first record at or after it, or the end of the log if there is none. Offsets
    outside the log become its first or last offset. The members of the group must be stopped.
    """
    config = _config(group, zookeeper, properties, bootstrap_servers, offsets_storage)
    confirmation = Confirmation(yes=yes, force=force)
    run_until_stopped(lambda: changes.reset(config, topic, to, confirmation))


@groups_app.command()
def migrate(
    group: Group,
    *,
    source: Annotated[Store, typer.Option("--from", help="The store to read offsets from.")],
    destination: Annotated[Store, typer.Option("--to", help="The store to write offsets to.")],
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    yes: Yes = False,
    force: Force = False,
) -> None:
    """Copy the committed offsets of a group from one store to the other.

    An offset in the destination that is not smaller stays unchanged. Without --yes, only print the
    plan. The members of the group must be stopped.
    """
    config = _config(group, zookeeper, properties, bootstrap_servers)
    confirmation = Confirmation(yes=yes, force=force)
    run_until_stopped(lambda: changes.migrate(config, source, destination, confirmation))
