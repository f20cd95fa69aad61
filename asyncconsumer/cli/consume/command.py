"""The command line of `asyncconsumer consume`."""

from dataclasses import replace
from typing import Annotated, Literal

import typer

from asyncconsumer.cli.consume import printer as consuming
from asyncconsumer.cli.consume.format import LETTERS, Format
from asyncconsumer.cli.properties import make_config, merge_properties, storage_properties
from asyncconsumer.cli.shared_options import Bootstrap, PropertiesFile, Property, Storage, ZooKeeper
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.errors import ConfigError
from asyncconsumer.group.zookeeper.filters import Blacklist, TopicFilter, Whitelist
from asyncconsumer.zookeeper import paths

Group = Annotated[
    str | None,
    typer.Option(metavar="GROUP", help="The group to join. Required here or in --properties."),
]
ConsumerId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Consumer id in the group. Default: a generated id."),
]
Topic = Annotated[
    list[str] | None, typer.Option(metavar="TOPIC", help="Topic to consume. Repeatable.")
]
TopicWhitelist = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Consume all topics whose names match, also new ones."),
]
TopicBlacklist = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX", help="Consume all topics whose names do not match, also new ones."
    ),
]
Streams = Annotated[
    int,
    typer.Option(
        min=1,
        max=1000,
        help="Number of streams for each topic, or for the pattern. Partitions are divided among "
        "the streams of all members.",
    ),
]
Assignor = Annotated[
    Literal["range", "roundrobin", "roundrobin-0.10", "roundrobin-0.8", "sticky"] | None,
    typer.Option(
        help="Partition assignment strategy. All members must use the same. Default: range."
    ),
]
From = Annotated[
    Literal["smallest", "largest"] | None,
    typer.Option(
        "--from",
        help="Where to start in partitions without a committed offset: at the first record "
        "(smallest) or at the end (largest). Default: largest.",
    ),
]
FormatText = Annotated[
    str, typer.Option("--format", "-f", help=f"Output format, as in kcat: {LETTERS}.")
]
MaxMessages = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Exit after N records. Default: no limit."),
]
Timeout = Annotated[
    int | None,
    typer.Option(
        metavar="MS",
        min=1,
        help="Exit after this many milliseconds without a record. Default: no limit.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Do not print assignments to standard error.")
]


def consume(
    *,
    zookeeper: ZooKeeper = None,
    group: Group = None,
    consumer_id: ConsumerId = None,
    topic: Topic = None,
    whitelist: TopicWhitelist = None,
    blacklist: TopicBlacklist = None,
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
    """Join a ZooKeeper group and print the records of its topics to standard output.

    Set exactly one of --topic, --whitelist and --blacklist. Ctrl-C or SIGTERM commits the printed
    records, leaves the group and exits with code 0. Kafka's classic (Scala) consumers can be
    members of the same group.

    Example: asyncconsumer consume --zookeeper localhost:2181 --group g --topic orders -f '%k %s\\n'
    """
    topics = select_topics(topic, whitelist, blacklist)
    options = {
        "zookeeper.connect": zookeeper,
        "group.id": group,
        "consumer.id": consumer_id,
        "partition.assignment.strategy": assignor,
        "auto.offset.reset": start,
        "bootstrap.servers": bootstrap_servers,
        **storage_properties(offsets_storage),
    }
    config = make_config(merge_properties(properties, property_ or (), options))
    timeout_ms = timeout_ms or max(0, config.consumer_timeout_ms) or None  # of all streams together
    consume_options = consuming.ConsumeOptions(
        topics=topics,
        streams=streams,
        format=Format(format_),
        max_messages=max_messages,
        timeout_ms=timeout_ms,
        quiet=quiet,
    )
    config = replace(config, consumer_timeout_ms=-1)
    run_until_stopped(lambda: consuming.consume(config, consume_options), stop_is_success=True)


def select_topics(
    topics: list[str] | None, whitelist: str | None, blacklist: str | None
) -> list[str] | TopicFilter:
    """Return the topics or the filter. Raise ConfigError unless exactly one argument is set."""
    options = {"--topic": topics, "--whitelist": whitelist, "--blacklist": blacklist}
    names = [name for name, value in options.items() if value]
    if len(names) != 1:
        raise ConfigError(
            "Set exactly one of --topic, --whitelist and --blacklist, "
            f"got {' and '.join(names) or 'none of them'}."
        )
    if whitelist:
        return Whitelist(whitelist)
    if blacklist:
        return Blacklist(blacklist)
    assert topics
    for topic in topics:
        paths.topic(topic)  # raises for an illegal topic name
    return topics
