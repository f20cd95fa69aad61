"""The command line options of `asyncconsumer groups`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from asyncconsumer.admin.reset_targets import parse_offsets, parse_target
from asyncconsumer.cli.connect import read_options
from asyncconsumer.cli.groups import changes, kafka, listing
from asyncconsumer.cli.groups.changes import Confirmation
from asyncconsumer.cli.properties import (
    make_config,
    merge_properties,
    read_file,
    storage_properties,
)
from asyncconsumer.cli.shared_options import Bootstrap, Json, PropertiesFile, Storage, ZooKeeper
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.config import ClassicConfig
from asyncconsumer.config.external import read_text
from asyncconsumer.errors import ConfigError

if TYPE_CHECKING:
    from asyncconsumer.types import TopicPartition

groups_app = typer.Typer(
    help="List and describe consumer groups, reset and delete their offsets. Groups are in Kafka, "
    "or with --zookeeper in ZooKeeper.",
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

ResetTopic = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:PARTITION,...]",
        help="Topic to reset, or some of its partitions, such as orders:0,3. Repeatable. "
        "Default in Kafka: all partitions with a committed offset.",
    ),
]
ResetTarget = Annotated[
    str | None,
    typer.Option(
        metavar="TARGET",
        help="The new offset: earliest, latest, a number, +N or -N from the committed offset, "
        "a time with its zone, such as 2024-05-31T12:00:00Z, or a duration before now, such "
        "as 1h30m.",
    ),
]
OffsetsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Offsets in lines of topic,partition,offset, instead of --to."
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


def _in_zookeeper(zookeeper: str | None, properties: Path | None) -> bool:
    """Return whether the command's options select groups in ZooKeeper."""
    if zookeeper is not None:
        return True
    return properties is not None and bool(read_file(properties).get("zookeeper.connect"))


@groups_app.command("list")
def list_groups(
    *,
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    json: Json = False,
) -> None:
    """List all groups: in Kafka with kind and state, in ZooKeeper with the live members.

    Example: asyncconsumer groups list -b localhost:9092
    """
    if not _in_zookeeper(zookeeper, properties):
        options = read_options(bootstrap_servers, None, properties)
        run_until_stopped(lambda: kafka.list_groups(options, as_json=json))
        return
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

    Example: asyncconsumer groups describe billing -b localhost:9092
    """
    if not _in_zookeeper(zookeeper, properties):
        options = read_options(bootstrap_servers, None, properties)
        run_until_stopped(lambda: kafka.describe(options, group, as_json=json))
        return
    config = _config(group, zookeeper, properties, bootstrap_servers, offsets_storage)
    run_until_stopped(lambda: listing.describe(config, as_json=json))


@groups_app.command()
def reset(
    group: Group,
    *,
    topic: ResetTopic = None,
    to: ResetTarget = None,
    from_file: OffsetsFile = None,
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    offsets_storage: Storage = None,
    properties: PropertiesFile = None,
    yes: Yes = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Set the committed offsets of a group. Without --yes, only print the plan.

    A time selects the first record at or after it, or the end of the log if there is none. Offsets
    outside the log become its first or last offset. The members of the group must be stopped.

    Example: asyncconsumer groups reset billing --to earliest --yes -b localhost:9092
    """
    if (to is None) == (from_file is None):
        raise ConfigError("Set exactly one of --to and --from-file.")
    if not _in_zookeeper(zookeeper, properties):
        if to is None:
            assert from_file is not None
            label = f"--from-file {from_file}"
            chosen: str | dict[TopicPartition, int] = parse_offsets(
                read_text(from_file, label), label
            )
        else:
            parse_target(to)  # raises before a connection is opened
            chosen = to
        options = read_options(bootstrap_servers, None, properties)
        run_until_stopped(
            lambda: kafka.reset(options, group, topic or (), chosen, yes=yes, as_json=json)
        )
        return
    if to is None or not topic:
        raise ConfigError("Groups in ZooKeeper need --topic and --to.")
    config = _config(group, zookeeper, properties, bootstrap_servers, offsets_storage)
    confirmation = Confirmation(yes=yes, force=force)
    run_until_stopped(lambda: changes.reset(config, topic, to, confirmation))


@groups_app.command()
def delete(
    group: Group,
    *,
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    yes: Yes = False,
) -> None:
    """Delete a group without live members, and its offsets. Without --yes, only check it."""
    options = read_options(bootstrap_servers, zookeeper, properties)
    run_until_stopped(lambda: kafka.delete(options, group, yes=yes))


@groups_app.command("delete-offsets")
def delete_offsets(
    group: Group,
    *,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION,...]",
            help="Topic, or some of its partitions, such as orders:0,3. Repeatable.",
        ),
    ],
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    yes: Yes = False,
) -> None:
    """Delete the committed offsets of a group for some topics. Without --yes, only check them."""
    options = read_options(bootstrap_servers, zookeeper, properties)
    run_until_stopped(lambda: kafka.delete_offsets(options, group, topic, yes=yes))


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
