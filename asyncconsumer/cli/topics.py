"""The commands of `asyncconsumer topics`."""

from dataclasses import asdict
from typing import Annotated

import typer

from asyncconsumer.cli import text
from asyncconsumer.cli.connect import make_admin, read_options
from asyncconsumer.cli.shared_options import Bootstrap, Json, PropertiesFile, Property
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.errors import ConfigError

topics_app = typer.Typer(
    help="List, describe, create, change and delete topics.", no_args_is_help=True
)
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="Topic config, such as retention.ms=86400000. Repeatable.",
    ),
]


@topics_app.command("list")
def list_topics(
    *,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also list the topics of Kafka itself.")
    ] = False,
    json: Json = False,
) -> None:
    """List all topics, one on each line.

    Example: asyncconsumer topics list -b localhost:9092
    """
    options = read_options(bootstrap_servers, None, properties, property_)

    async def show() -> None:
        async with make_admin(options) as admin:
            names = await admin.topics(internal=internal)
        if json:
            text.print_json(names)
        else:
            for name in names:
                typer.echo(text.printable(name))

    run_until_stopped(show)


@topics_app.command()
def describe(
    topic: Topic,
    *,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    json: Json = False,
) -> None:
    """Show the partitions of a topic with leader and replicas, and its changed configs.

    Example: asyncconsumer topics describe orders -b localhost:9092
    """
    options = read_options(bootstrap_servers, None, properties, property_)

    async def show() -> None:
        async with make_admin(options) as admin:
            (described,) = await admin.describe_topics([topic])
            configs = await admin.topic_configs(topic)
        if json:
            text.print_json(
                asdict(described) | {"configs": {entry.name: entry.value for entry in configs}}
            )
            return
        table = text.table("partition", "leader", "replicas", "in sync", right=("partition",))
        for row in described.partitions:
            table.add_row(
                text.cell(row.partition),
                text.cell(row.leader, "bold red" if row.leader is None else ""),
                text.cell(", ".join(map(str, row.replicas))),
                text.cell(
                    ", ".join(map(str, row.in_sync)), "yellow" if row.is_under_replicated else ""
                ),
            )
        out = text.console()
        out.print(f"topic {topic}, partitions: {len(described.partitions)}")
        out.print(table)
        for entry in configs:
            if entry.source == "topic":
                out.print(text.cell(f"{entry.name}={entry.value}"))

    run_until_stopped(show)


@topics_app.command()
def create(
    topic: Topic,
    *,
    partitions: Annotated[
        int, typer.Option(help="Number of partitions. -1: the default of the brokers.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Number of replicas. -1: the default of the brokers.")
    ] = -1,
    config: Config = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    json: Json = False,
) -> None:
    """Create a topic.

    Example: asyncconsumer topics create orders --partitions 6 -b localhost:9092
    """
    options = read_options(bootstrap_servers, None, properties, property_)
    configs = _configs(config)

    async def make() -> None:
        async with make_admin(options) as admin:
            await admin.create_topic(
                topic,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
            )
        fields = {"topic": topic, "created": True}
        text.print_outcome(f"created topic {topic}", "green", fields, as_json=json)

    run_until_stopped(make)


@topics_app.command()
def alter(
    topic: Topic,
    *,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="New number of partitions. It can only grow.")
    ] = None,
    config: Config = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    json: Json = False,
) -> None:
    """Add partitions to a topic, or change configs. An empty value restores the default.

    Example: asyncconsumer topics alter orders --partitions 12 --config retention.ms=86400000
    """
    options = read_options(bootstrap_servers, None, properties, property_)
    configs = {name: value or None for name, value in _configs(config).items()}
    if partitions is None and not configs:
        raise ConfigError("There is nothing to change. Set --partitions or --config.")

    async def change() -> None:
        async with make_admin(options) as admin:
            if partitions is not None:
                await admin.add_partitions(topic, partitions)
            if configs:
                await admin.set_topic_configs(topic, configs)
        fields = {"topic": topic, "changed": True}
        text.print_outcome(f"changed topic {topic}", "green", fields, as_json=json)

    run_until_stopped(change)


@topics_app.command()
def delete(
    topic: Topic,
    *,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it. Default: only check it.")] = False,
    json: Json = False,
) -> None:
    """Delete a topic and all its records. Without --yes, nothing is deleted.

    Example: asyncconsumer topics delete orders --yes -b localhost:9092
    """
    options = read_options(bootstrap_servers, None, properties, property_)

    async def remove() -> None:
        async with make_admin(options) as admin:
            await admin.describe_topics([topic])
            fields = {"topic": topic, "deleted": yes}
            if not yes:
                message = f"topic {topic} would be deleted; repeat the command with --yes"
                text.print_outcome(message, "yellow", fields, as_json=json)
                raise typer.Exit(1)
            await admin.delete_topics([topic])
        text.print_outcome(f"deleted topic {topic}", "green", fields, as_json=json)

    run_until_stopped(remove)


def _configs(assignments: list[str] | None) -> dict[str, str]:
    configs = {}
    for assignment in assignments or ():
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--config {assignment!r} must have the form NAME=VALUE.")
        configs[name.strip()] = value.strip()
    return configs
