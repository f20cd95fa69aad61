"""The command line options of `asyncconsumer dlq`."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from asyncconsumer.admin.reset_targets import parse_duration
from asyncconsumer.cli.connect import connection_options, read_options
from asyncconsumer.cli.dlq import actions
from asyncconsumer.cli.shared_options import Bootstrap, Json, PropertiesFile, Property
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.dead_letter_queue import DeadLetterFilter, DeadLetterQueue

dlq_app = typer.Typer(
    help="List, show, replay, export and drop the dead letters of a topic.", no_args_is_help=True
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The dead letter topic.")]
Error = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Only those whose error type or message matches."),
]
Handler = Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this handler.")]
Key = Annotated[str | None, typer.Option(metavar="KEY", help="Only those with this key.")]
OlderThan = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Only those written before, such as 2h.")
]
NewerThan = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Only those written since, such as 30m.")
]
Place = Annotated[
    list[str] | None,
    typer.Option(
        "--place",
        metavar="PARTITION:OFFSET",
        help="Only this one, as `dlq list` shows it. Repeatable.",
    ),
]
Limit = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="At most N, the oldest ones first.")
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Do it. Default: only list them and exit with code 1.")
]


@dataclass(frozen=True, slots=True)
class _Request:
    """The topic, the connection options and the filter of one `dlq` command."""

    topic: str
    connection: dict[str, Any]
    selection: DeadLetterFilter

    def run(self, action: Callable[[DeadLetterQueue], Awaitable[None]]) -> None:
        """Open the queue of dead letters, and run an action on it."""

        async def main() -> None:
            async with DeadLetterQueue(self.topic, **self.connection) as queue:
                await action(queue)

        run_until_stopped(main)


def _request(
    topic: str,
    servers: tuple[str | None, Path | None, list[str] | None],
    conditions: tuple[str | None, str | None, str | None],
    ages: tuple[str | None, str | None] = (None, None),
    places: list[str] | None = None,
) -> _Request:
    """Return the topic, connection options and filter that the command line describes.

    `conditions` are the options --error, --handler and --key. `ages` are --older-than and
    --newer-than. `places` are the values of --place.
    """
    bootstrap, properties, assignments = servers
    error, handler, key = conditions
    older, newer = ages
    try:
        re.compile(error or "")
    except re.error as failure:
        raise ConfigError(f"--error {error!r} is not a valid pattern: {failure}.") from None
    selection = DeadLetterFilter(
        error,
        handler,
        None if key is None else key.encode(),
        _duration("--older-than", older),
        _duration("--newer-than", newer),
        places,
    )
    options = read_options(bootstrap, None, properties, assignments)
    return _Request(topic, connection_options(options), selection)


def _duration(option: str, value: str | None) -> timedelta | None:
    duration = None if value is None else parse_duration(value)
    if value is not None and duration is None:
        raise ConfigError(f"{option} {value!r} must be a duration such as 90s, 30m or 2h.")
    return duration


@dlq_app.command("list")
def list_dead_letters(
    topic: Topic,
    *,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    error: Error = None,
    handler: Handler = None,
    key: Key = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """List the dead letters that are not replayed and not dropped, the oldest first.

    Example: asyncconsumer dlq list orders.dlq -b localhost:9092 --error Timeout
    """
    servers = (bootstrap_servers, properties, property_)
    request = _request(topic, servers, (error, handler, key), (older_than, newer_than))
    request.run(
        lambda queue: actions.list_dead_letters(queue, request.selection, limit, as_json=json)
    )


@dlq_app.command()
def show(
    topic: Topic,
    place: Annotated[
        str, typer.Argument(metavar="PARTITION:OFFSET", help="As `dlq list` shows it.")
    ],
    *,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    json: Json = False,
) -> None:
    """Show one dead letter: its failure, its original place, its key, value and headers.

    Example: asyncconsumer dlq show orders.dlq 0:17 -b localhost:9092
    """
    servers = (bootstrap_servers, properties, property_)
    request = _request(topic, servers, (None, None, None), places=[place])
    request.run(lambda queue: actions.show(queue, request.selection, place, as_json=json))


@dlq_app.command()
def replay(
    topic: Topic,
    *,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    error: Error = None,
    handler: Handler = None,
    key: Key = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    place: Place = None,
    limit: Limit = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Send to this topic. Default: the original topics."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="A topic that they may be sent back to. Repeatable."),
    ] = None,
    edit: Annotated[
        bool, typer.Option("--edit", help="Open them in $EDITOR first. Removed lines stay.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Send dead letters back to the topics that they came from, each once.

    All groups that read these topics get the records again. A forged dead letter can name any
    topic. So only those that name a --source are sent, or all of them with --to.

    Example: asyncconsumer dlq replay orders.dlq --source orders --yes -b localhost:9092
    """
    servers = (bootstrap_servers, properties, property_)
    request = _request(topic, servers, (error, handler, key), (older_than, newer_than), place)
    if (to is None) == (not source):
        raise ConfigError(
            "Name the topics to send to: those that the dead letters came from with --source, or "
            "another one with --to."
        )
    sources = frozenset(source or ())
    plan = actions.ReplayPlan(
        request.selection, limit, to, sources, edit=edit, yes=yes, as_json=json
    )
    request.run(lambda queue: actions.replay(queue, plan))


@dlq_app.command()
def export(
    topic: Topic,
    *,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    error: Error = None,
    handler: Handler = None,
    key: Key = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="File to write. Default: standard output."),
    ] = None,
) -> None:
    """Write dead letters as lines of JSON. The dead letters stay in the list.

    Example: asyncconsumer dlq export orders.dlq -b localhost:9092 --output failed.jsonl
    """
    servers = (bootstrap_servers, properties, property_)
    request = _request(topic, servers, (error, handler, key), (older_than, newer_than))
    request.run(lambda queue: actions.export(queue, request.selection, limit, output))


@dlq_app.command()
def drop(
    topic: Topic,
    *,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    error: Error = None,
    handler: Handler = None,
    key: Key = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    place: Place = None,
    limit: Limit = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Mark dead letters as done without sending them. The retention of the topic deletes them.

    Example: asyncconsumer dlq drop orders.dlq --older-than 168h --yes -b localhost:9092
    """
    servers = (bootstrap_servers, properties, property_)
    request = _request(topic, servers, (error, handler, key), (older_than, newer_than), place)
    request.run(lambda queue: actions.drop(queue, request.selection, limit, yes=yes, as_json=json))
