"""The command line of `asyncconsumer consume`."""

from dataclasses import replace
from typing import Annotated, Literal

import typer

from asyncconsumer.cli.consume import printer as consuming
from asyncconsumer.cli.consume.format import LETTERS, Format
from asyncconsumer.cli.properties import config_of, gathered, storage_properties
from asyncconsumer.cli.shared_options import Bootstrap, PropertiesFile, Property, Storage, ZooKeeper
from asyncconsumer.cli.signals import until_stopped
from asyncconsumer.errors import ConfigError
from asyncconsumer.group.zookeeper.filters import Blacklist, TopicFilter, Whitelist
from asyncconsumer.zookeeper import paths

Group = Annotated[str | None, typer.Option(metavar="GROUP", help="The group to join.")]
ConsumerId = Annotated[
    str | None, typer.Option(help="The consumer id in the group. Default: generated.")
]
Topic = Annotated[list[str] | None, typer.Option(help="A topic to read. Repeatable.")]
White = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Read all topics whose names match.")
]
Black = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Read all topics whose names do not match.")
]
Streams = Annotated[int, typer.Option(min=1, max=1000, help="Streams for each topic or filter.")]
Assignor = Annotated[
    Literal["range", "roundrobin", "roundrobin-0.10", "roundrobin-0.8", "sticky"] | None,
    typer.Option(help="The assignor. All members must use the same. Default: range."),
]
From = Annotated[
    Literal["smallest", "largest"] | None,
    typer.Option("--from", help="Where to start without a committed offset. Default: largest."),
]
FormatText = Annotated[str, typer.Option("--format", "-f", help=f"A kcat format string: {LETTERS}")]
MaxMessages = Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")]
Timeout = Annotated[
    int | None, typer.Option(min=1, help="Stop after this many milliseconds without a record.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Do not report assignments and progress.")
]


def consume(
    *,
    zookeeper: ZooKeeper = None,
    group: Group = None,
    consumer_id: ConsumerId = None,
    topic: Topic = None,
    whitelist: White = None,
    blacklist: Black = None,
    streams: Streams = 1,
    assignor: Assignor = None,
    offsets_storage: Storage = None,
    start: From = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    format_: FormatText = r"%s\n",
    max_messages: MaxMessages = None,
    timeout_ms: Timeout = None,
    quiet: Quiet = False,
) -> None:
    """Join a group in ZooKeeper and print its records. Ctrl-C or SIGTERM commit and leave.

    Members of Kafka's classic consumer may be in the same group.
    """
    topics = chosen_topics(topic, whitelist, blacklist)
    given = {
        "zookeeper.connect": zookeeper,
        "group.id": group,
        "consumer.id": consumer_id,
        "partition.assignment.strategy": assignor,
        "auto.offset.reset": start,
        "bootstrap.servers": bootstrap_servers,
        **storage_properties(offsets_storage),
    }
    config = config_of(gathered(properties, property_ or (), given))
    patience = timeout_ms or max(0, config.consumer_timeout_ms) or None  # for all streams together
    wanted = consuming.ConsumeOptions(
        topics=topics,
        streams=streams,
        format=Format(format_),
        max_messages=max_messages,
        timeout_ms=patience,
        quiet=quiet,
    )
    config = replace(config, consumer_timeout_ms=-1)
    until_stopped(lambda: consuming.consume(config, wanted), meant=True)


def chosen_topics(
    topics: list[str] | None, whitelist: str | None, blacklist: str | None
) -> list[str] | TopicFilter:
    """Return the subscription. Exactly one of the three must be given."""
    given = {"--topic": topics, "--whitelist": whitelist, "--blacklist": blacklist}
    named = [name for name, value in given.items() if value]
    if len(named) != 1:
        raise ConfigError(
            f"{' and '.join(named) or 'nothing'} is given: say what to read with one of --topic, "
            "--whitelist and --blacklist"
        )
    if whitelist:
        return Whitelist(whitelist)
    if blacklist:
        return Blacklist(blacklist)
    assert topics
    for topic in topics:
        paths.topic(topic)  # raises for an illegal topic name
    return topics
