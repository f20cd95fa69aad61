"""The command line options of `asyncconsumer groups`."""

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from asyncconsumer.admin.reset_targets import parse_offsets, parse_target
from asyncconsumer.cli.connect import read_options
from asyncconsumer.cli.groups import changes, kafka, listing
from asyncconsumer.cli.groups.changes import Confirmation
from asyncconsumer.cli.properties import (
    in_zookeeper,
    make_config,
    merge_properties,
    storage_properties,
)
from asyncconsumer.cli.shared_options import (
    ZOOKEEPER_PANEL,
    Bootstrap,
    Json,
    PropertiesFile,
    Property,
    Storage,
    ZooKeeper,
    refuse_options,
)
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.config import ClassicConfig
from asyncconsumer.config.external import read_text
from asyncconsumer.errors import ConfigError
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
        rich_help_panel=ZOOKEEPER_PANEL,
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
        "Default: all partitions with a committed offset.",
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


class _GroupLocation(NamedTuple):
    """The command line options that select Kafka or ZooKeeper, and the connection to it."""

    zookeeper: str | None
    bootstrap_servers: str | None
    properties: Path | None
    assignments: list[str] | None

    @property
    def in_zookeeper(self) -> bool:
        """Whether the options select groups in ZooKeeper."""
        return in_zookeeper(self.zookeeper, self.properties, self.assignments)

    def options(self) -> dict[str, Any]:
        """Return the options of a client for groups in Kafka."""
        return read_options(
            self.bootstrap_servers, self.zookeeper, self.properties, self.assignments
        )

    def config(self, group: str, storage: str | None = None) -> ClassicConfig:
        """Return the config for a group in ZooKeeper."""
        options = {
            "group.id": group,
            "zookeeper.connect": self.zookeeper,
            "bootstrap.servers": self.bootstrap_servers,
            **storage_properties(storage),
        }
        return make_config(merge_properties(self.properties, self.assignments or (), options))


def _target(to: str | None, from_file: Path | None) -> str | dict[TopicPartition, int]:
    """Return the value of --to, or the offsets in the file of --from-file.

    Raise ConfigError unless exactly one of them is set, and valid.
    """
    if (to is None) == (from_file is None):
        raise ConfigError("Set exactly one of --to and --from-file.")
    if to is not None:
        parse_target(to)  # refuses an invalid target before a connection is opened
        return to
    assert from_file is not None
    label = f"--from-file {from_file}"
    return parse_offsets(read_text(from_file, label), label)


@groups_app.command("list")
def list_groups(
    *,
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    json: Json = False,
) -> None:
    """List all groups: in Kafka with kind and state, in ZooKeeper with the live members.

    Example: asyncconsumer groups list -b localhost:9092
    """
    location = _GroupLocation(zookeeper, bootstrap_servers, properties, property_)
    if not location.in_zookeeper:
        options = location.options()
        run_until_stopped(lambda: kafka.list_groups(options, as_json=json))
        return
    config = location.config("unused")
    run_until_stopped(lambda: listing.list_groups(config, as_json=json))


@groups_app.command()
def describe(
    group: Group,
    *,
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    offsets_storage: Storage = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    json: Json = False,
) -> None:
    """Show the partitions of a group with committed offset, lag in records, and owner.

    Lag is the number of offsets between the committed offset and the end of the log.

    Example: asyncconsumer groups describe billing -b localhost:9092
    """
    location = _GroupLocation(zookeeper, bootstrap_servers, properties, property_)
    if not location.in_zookeeper:
        refuse_options({"--offsets-storage": offsets_storage}, "needs --zookeeper")
        options = location.options()
        run_until_stopped(lambda: kafka.describe(options, group, as_json=json))
        return
    config = location.config(group, offsets_storage)
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
    property_: Property = None,
    yes: Yes = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Set the committed offsets of a group. Without --yes, only print the plan.

    A time selects the first record at or after it, or the end of the log if there is none. Offsets
    outside the log become its first or last offset. The members of the group must be stopped.

    Example: asyncconsumer groups reset billing --to earliest --yes -b localhost:9092
    """
    target = _target(to, from_file)
    location = _GroupLocation(zookeeper, bootstrap_servers, properties, property_)
    if not location.in_zookeeper:
        refuse_options(
            {"--offsets-storage": offsets_storage, "--force": force}, "needs --zookeeper"
        )
        options, topics = location.options(), topic or ()
        run_until_stopped(
            lambda: kafka.reset(options, group, topics, target, yes=yes, as_json=json)
        )
        return
    config = location.config(group, offsets_storage)
    confirmation = Confirmation(yes=yes, force=force, as_json=json)
    run_until_stopped(lambda: changes.reset(config, topic or (), target, confirmation))


@groups_app.command()
def delete(
    group: Group,
    *,
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a group without live members, and its offsets. Without --yes, only check it.

    Example: asyncconsumer groups delete billing --yes -b localhost:9092
    """
    options = _GroupLocation(zookeeper, bootstrap_servers, properties, property_).options()
    run_until_stopped(lambda: kafka.delete(options, group, yes=yes, as_json=json))


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
    property_: Property = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete the committed offsets of a group for some topics. Without --yes, only check them.

    Example: asyncconsumer groups delete-offsets billing --topic orders:0,3 -b localhost:9092
    """
    options = _GroupLocation(zookeeper, bootstrap_servers, properties, property_).options()
    run_until_stopped(lambda: kafka.delete_offsets(options, group, topic, yes=yes, as_json=json))


@groups_app.command()
def migrate(
    group: Group,
    *,
    source: Annotated[Store, typer.Option("--from", help="The store to read offsets from.")],
    destination: Annotated[Store, typer.Option("--to", help="The store to write offsets to.")],
    zookeeper: ZooKeeper = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    yes: Yes = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Copy the committed offsets of a group from one store to the other.

    An offset in the destination stays unchanged if it is larger. Without --yes, only print the
    plan. The members of the group must be stopped.

    Example: asyncconsumer groups migrate billing --from zookeeper --to kafka --zookeeper zk:2181
    """
    config = _GroupLocation(zookeeper, bootstrap_servers, properties, property_).config(group)
    confirmation = Confirmation(yes=yes, force=force, as_json=json)
    run_until_stopped(lambda: changes.migrate(config, source, destination, confirmation))
