"""The command line of `asyncconsumer consume`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from asyncconsumer.cli.connect import read_options
from asyncconsumer.cli.consume.format import LETTERS
from asyncconsumer.cli.consume.printer import ConsumeOptions
from asyncconsumer.cli.consume.printer import consume as print_records
from asyncconsumer.cli.consume.reader import (
    OutputOptions,
    ReadOptions,
    Selection,
    read,
    renderer,
)
from asyncconsumer.cli.consume.selection import RecordFilter
from asyncconsumer.cli.consume.values import ValueFormat
from asyncconsumer.cli.properties import (
    in_zookeeper,
    make_config,
    merge_properties,
    storage_properties,
)
from asyncconsumer.cli.shared_options import (
    ZOOKEEPER_PANEL,
    Bootstrap,
    PropertiesFile,
    Property,
    Storage,
    ZooKeeper,
    refuse_options,
    refuse_password,
)
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.config import ClassicConfig
from asyncconsumer.errors import ConfigError
from asyncconsumer.group.zookeeper.filters import Blacklist, TopicFilter, Whitelist
from asyncconsumer.zookeeper import paths

Group = Annotated[
    str | None,
    typer.Option(metavar="GROUP", help="The group to join. Without one, nothing is committed."),
]
ConsumerId = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ZOOKEEPER_PANEL,
        metavar="ID",
        help="Consumer id in the group. Default: a generated id.",
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC]...",
        show_default=False,
        help="Topics to consume. A name that starts with ^ is a pattern (Kafka only).",
    ),
]
Topic = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Another topic, as in kcat. Repeatable."),
]
TopicWhitelist = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Consume all topics whose names match, also new ones."),
]
TopicBlacklist = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ZOOKEEPER_PANEL,
        metavar="REGEX",
        help="Consume all topics whose names do not match, also new ones.",
    ),
]
Streams = Annotated[
    int,
    typer.Option(
        rich_help_panel=ZOOKEEPER_PANEL,
        min=1,
        max=1000,
        help="Number of streams for each topic, or for the pattern. Partitions are divided among "
        "the streams of all members.",
    ),
]
Assignor = Annotated[
    Literal["range", "roundrobin", "roundrobin-0.10", "roundrobin-0.8", "sticky"] | None,
    typer.Option(
        rich_help_panel=ZOOKEEPER_PANEL,
        help="Partition assignment strategy. All members must use the same. Default: range.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        "-o",
        metavar="POSITION",
        help="Where to start: earliest, latest, an offset, -N before the end, a time such as "
        "2024-05-31T12:00:00Z, or a duration before now such as 1h. Default: earliest. In a group "
        "it is earliest or latest, for partitions without a committed offset; default: latest.",
    ),
]
Tail = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Start N records before the end of each partition."),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="POSITION",
        help="Where to stop: end, an offset, or a time. Default: wait for new records.",
    ),
]
ToEnd = Annotated[bool, typer.Option("-e", help="Stop at the end, as --until end.")]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, metavar="N", help="Partition. Repeatable."),
]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print each record as JSON, with headers and timestamp.")
]
ArrowFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write an Arrow file (Kafka only).")
]
ParquetFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a Parquet file (Kafka only).")
]
Value = Annotated[
    ValueFormat | None,
    typer.Option("--value-format", help="Print values with a schema as JSON (Kafka only)."),
]
Registry = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="SCHEMA_REGISTRY_URL",
        callback=refuse_password,
        help="Schema registry of --value-format. A URL with a password belongs in the variable.",
    ),
]
Key = Annotated[str | None, typer.Option(metavar="KEY", help="Print only records with this key.")]
Grep = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Print only records whose value matches.")
]
Kcat = Annotated[bool, typer.Option("-C", hidden=True, help="Accepted for kcat; no effect.")]
FormatText = Annotated[
    str, typer.Option("--format", "-f", help=f"Output format, as in kcat: {LETTERS}.")
]
MaxMessages = Annotated[
    int | None,
    typer.Option(
        "--max-messages", "-c", metavar="N", min=1, help="Exit after N records. Default: no limit."
    ),
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

_CLASSIC: Final = (
    "zookeeper.connect",
    "group.id",
    "consumer.id",
    "partition.assignment.strategy",
    "auto.offset.reset",
    "bootstrap.servers",
)


def consume(
    topics: Topics = None,
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
    tail: Tail = None,
    until: Until = None,
    to_end: ToEnd = False,
    partition: Partitions = None,
    key: Key = None,
    grep: Grep = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    format_: FormatText = r"%s\n",
    json: JsonLines = False,
    arrow: ArrowFile = None,
    parquet: ParquetFile = None,
    value_format: Value = None,
    registry: Registry = None,
    max_messages: MaxMessages = None,
    timeout_ms: Timeout = None,
    quiet: Quiet = False,
    kcat: Kcat = False,
) -> None:
    """Print the records of topics to standard output, without a group or as a member of one.

    With --zookeeper, join a group in ZooKeeper, in which Kafka's classic (Scala) consumers can be
    members. Ctrl-C or SIGTERM commits the printed records, leaves the group and exits with code 0.

    Example: asyncconsumer consume -b localhost:9092 orders --tail 10 -f '%o %k %s\\n'

    Example: asyncconsumer consume -b localhost:9092 orders --until end --parquet orders.parquet
    """
    names, filters = [*(topics or ()), *(topic or ())], RecordFilter(key, grep)
    if not in_zookeeper(zookeeper, properties, property_):
        _refuse_zookeeper_options(consumer_id, streams > 1, assignor, offsets_storage)
        kafka_options = read_options(bootstrap_servers, None, properties, property_)
        names = names or _pattern(whitelist, blacklist)
        selection = Selection(names, partition, *_limits(start, tail, until, to_end=to_end))
        output = OutputOptions(format_, json, arrow, parquet, value_format, registry, quiet)
        reading = ReadOptions(selection, filters, output, max_messages, timeout_ms)
        run_until_stopped(lambda: read(kafka_options, reading, group), stop_is_success=True)
        return
    _refuse_kafka_options(tail, until or to_end, partition, arrow, parquet, value_format)
    named = (zookeeper, group, consumer_id, assignor, _zookeeper_reset(start), bootstrap_servers)
    config = _classic_config(named, offsets_storage, properties, property_)
    chosen, render = select_topics(names, whitelist, blacklist), renderer(format_, json=json)
    member = ConsumeOptions(chosen, streams, render, filters, max_messages, timeout_ms, quiet=quiet)
    _run_member(config, member)


def _classic_config(
    named: tuple[str | None, ...],
    storage: str | None,
    properties: Path | None,
    assignments: list[str] | None,
) -> ClassicConfig:
    """Return the config of a member of a group in ZooKeeper.

    `named` has the values of the properties in `_CLASSIC`, in that order.
    """
    options = dict(zip(_CLASSIC, named, strict=True)) | storage_properties(storage)
    return make_config(merge_properties(properties, assignments or (), options))


def _refuse_zookeeper_options(*values: object) -> None:
    """Raise ConfigError if an option is set that only groups in ZooKeeper have."""
    names = ("--consumer-id", "--streams", "--assignor", "--offsets-storage")
    refuse_options(dict(zip(names, values, strict=True)), "needs --zookeeper")


def _refuse_kafka_options(*values: object) -> None:
    """Raise ConfigError if an option is set that does not work with groups in ZooKeeper."""
    names = ("--tail", "--until", "--partition", "--arrow", "--parquet", "--value-format")
    refuse_options(dict(zip(names, values, strict=True)), "does not work with groups in ZooKeeper")


def _limits(
    start: str | None, tail: int | None, until: str | None, *, to_end: bool
) -> tuple[str | None, str | None]:
    """Return the positions at which reading starts and stops, as --from and --until name them.

    Raise ConfigError if --from and --tail, or -e and another --until, are set together.
    """
    if tail is not None and start is not None:
        raise ConfigError("Set only one of --from and --tail.")
    if to_end and until not in (None, "end"):
        raise ConfigError("Set only one of --until and -e.")
    return start if tail is None else f"-{tail}", "end" if to_end else until


def _pattern(whitelist: str | None, blacklist: str | None) -> list[str]:
    """Return the topic pattern of --whitelist, for a consumer of a Kafka group.

    Raise an error for --blacklist, which only groups in ZooKeeper have.
    """
    if blacklist:
        raise ConfigError(
            "--blacklist needs --zookeeper. Without it, use a pattern such as '^(?!audit).*'"
        )
    return [f"^{whitelist}"] if whitelist else []


def _run_member(config: ClassicConfig, options: ConsumeOptions) -> None:
    """Print records as a member of a group in ZooKeeper."""
    if not options.timeout_ms and config.consumer_timeout_ms > 0:
        options = replace(options, timeout_ms=config.consumer_timeout_ms)
    # the command applies the timeout, to all streams together
    config = replace(config, consumer_timeout_ms=-1)
    run_until_stopped(lambda: print_records(config, options), stop_is_success=True)


def _zookeeper_reset(start: str | None) -> str | None:
    """Return the classic consumer's name of a start position, such as `smallest` for earliest.

    Return None if `start` is None.
    """
    return {"earliest": "smallest", "latest": "largest"}.get(start or "", start)


def select_topics(
    topics: list[str] | None, whitelist: str | None, blacklist: str | None
) -> list[str] | TopicFilter:
    """Return the topics or the topic filter.

    Raise ConfigError unless exactly one argument is set.
    """
    options = {"topics": topics, "--whitelist": whitelist, "--blacklist": blacklist}
    names = [name for name, value in options.items() if value]
    if len(names) != 1:
        raise ConfigError(
            "Set exactly one of topics, --whitelist and --blacklist, "
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
