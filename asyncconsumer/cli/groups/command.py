"""The command line of `asyncconsumer groups`."""

from typing import Annotated, Literal

import typer

from asyncconsumer.cli.groups import changes, listing
from asyncconsumer.cli.groups.changes import Consent
from asyncconsumer.cli.properties import config_of, gathered, storage_properties
from asyncconsumer.cli.shared_options import Bootstrap, Json, PropertiesFile, Storage, ZooKeeper
from asyncconsumer.cli.signals import until_stopped
from asyncconsumer.config import ClassicConfig

groups_app = typer.Typer(
    help="Consumer groups in ZooKeeper: members, offsets and lag; reset and migrate offsets.",
    no_args_is_help=True,
)

Group = Annotated[str, typer.Argument(metavar="GROUP")]
Store = Literal["zookeeper", "kafka"]
Yes = Annotated[bool, typer.Option("--yes", help="Apply the plan without asking.")]
Force = Annotated[bool, typer.Option("--force", help="Proceed even if the group has live members.")]


def _config(
    group: str,
    zookeeper: str | None,
    properties: PropertiesFile,
    bootstrap_servers: str | None = None,
    storage: str | None = None,
) -> ClassicConfig:
    given = {
        "group.id": group,
        "zookeeper.connect": zookeeper,
        "bootstrap.servers": bootstrap_servers,
        **storage_properties(storage),
    }
    return config_of(gathered(properties, (), given))


@groups_app.command("list")
def list_groups(
    *, zookeeper: ZooKeeper = None, properties: PropertiesFile = None, json: Json = False
) -> None:
    """List all groups and the number of live members of each."""
    config = _config("all-of-them", zookeeper, properties)
    until_stopped(lambda: listing.list_groups(config, as_json=json))


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
    """Show the partitions, offsets, lag, owners and members of a group."""
    config = _config(group, zookeeper, properties, bootstrap_servers, offsets_storage)
    until_stopped(lambda: listing.describe(config, as_json=json))


@groups_app.command()
def reset(
    group: Group,
    *,
    topic: Annotated[
        list[str],
        typer.Option(metavar="TOPIC[:PARTITION,...]", help="Partitions to reset. Repeatable."),
    ],
    to: Annotated[
        str, typer.Option(metavar="earliest|latest|OFFSET|+N|-N|TIME", help="The new offset.")
    ],
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    offsets_storage: Storage = None,
    properties: PropertiesFile = None,
    yes: Yes = False,
    force: Force = False,
) -> None:
    """Set the offsets of a group. Without --yes, only print the plan.

    +N and -N count from the committed offset. A time needs a zone: 2024-05-31T12:00:00Z.
    """
    config = _config(group, zookeeper, properties, bootstrap_servers, offsets_storage)
    consent = Consent(yes=yes, force=force)
    until_stopped(lambda: changes.reset(config, topic, to, consent))


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
    """Copy the offsets of a group to the other store, unless that is as far already."""
    config = _config(group, zookeeper, properties, bootstrap_servers)
    consent = Consent(yes=yes, force=force)
    until_stopped(lambda: changes.migrate(config, source, destination, consent))
