"""The command `asyncconsumer lag`."""

import asyncio
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, Final

import typer

from asyncconsumer.admin.admin import Admin
from asyncconsumer.admin.reset_targets import parse_duration
from asyncconsumer.admin.results import GroupLag
from asyncconsumer.cli import text
from asyncconsumer.cli.connect import make_admin, read_options
from asyncconsumer.cli.groups.kafka import lag_rows, print_lag
from asyncconsumer.cli.shared_options import Bootstrap, Json, PropertiesFile, Property, ZooKeeper
from asyncconsumer.cli.signals import run_until_stopped
from asyncconsumer.errors import ConfigError, ConsumerError

LAG_EXCEEDED: Final = 3
"""The exit code if the lag is above the limit of `--fail-above`."""


def lag_command(
    groups: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP]...", help="Names of groups. Default: all groups."),
    ] = None,
    *,
    bootstrap_servers: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Only this topic, for example to leave out retry topics. Repeatable.",
        ),
    ] = None,
    seconds: Annotated[
        bool,
        typer.Option("--seconds", help="Also show the age of the first unread record."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Repeat until Ctrl-C, every --interval seconds.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between repetitions.")] = 2.0,
    fail_above: Annotated[
        str | None,
        typer.Option(
            metavar="N|DURATION",
            help="Exit with code 3 if a group has a larger lag: in records, such as 1000, or in "
            "time, such as 30s.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show how far groups are behind the end of their topics.

    Exit codes: 0 without a problem, 1 after an error, 3 if the lag is above --fail-above.

    Example: asyncconsumer lag billing -b localhost:9092 --seconds

    Example: asyncconsumer lag billing --topic orders -b localhost:9092 --fail-above 30s
    """
    limit = _parse_limit(fail_above)
    with_age = seconds or isinstance(limit, float)
    check = _LagCheck(groups, topic, limit, with_age=with_age, as_json=json)
    options = read_options(bootstrap_servers, zookeeper, properties, property_)
    run_until_stopped(
        lambda: _show(options, check, interval if watch else None), stop_is_success=watch
    )


@dataclass(frozen=True, slots=True)
class _LagCheck:
    """The groups, the topics, the limit and the format of a `lag` command."""

    groups: list[str] | None
    topics: list[str] | None
    limit: int | float | None
    _: KW_ONLY
    with_age: bool
    as_json: bool


async def _show(options: dict[str, Any], check: _LagCheck, interval: float | None) -> None:
    """Print the lags once, or every `interval` seconds if that is not None.

    With an interval, an error after the first output is printed, and the command continues.
    """
    shown = False
    async with make_admin(options) as admin:
        while True:
            try:
                results = await _measure(admin, check.groups, seconds=check.with_age)
                results = only_topics(results, check.topics)
            except ConsumerError as error:
                if interval is None or not shown:
                    raise
                text.print_message(f"error: {error}", "red")
            else:
                if interval is not None and not check.as_json:
                    text.console().clear()  # has no effect if the output is not a terminal
                _report(results, check)
                shown = True
            if interval is None:
                return
            await asyncio.sleep(interval)


def _report(results: list[GroupLag], check: _LagCheck) -> None:
    """Print the lags. Raise `typer.Exit` if one exceeds the limit."""
    _print(results, seconds=check.with_age, as_json=check.as_json)
    if unknown := unknown_lags(results, seconds=check.with_age):
        text.print_message(unknown, "yellow")
    if any(_exceeds(result, check.limit) for result in results):
        raise typer.Exit(LAG_EXCEEDED)


async def _measure(admin: Admin, groups: list[str] | None, *, seconds: bool) -> list[GroupLag]:
    """Return the lag of these groups, or of all groups that commit offsets."""
    names = groups or [
        listing.group
        for listing in await admin.groups()
        if listing.kind in ("classic", "consumer", "zookeeper")
    ]
    return [await admin.lag(name, seconds=seconds) for name in names]


def only_topics(results: list[GroupLag], topics: list[str] | None) -> list[GroupLag]:
    """Return the lags in these topics, or all of `results` without topics.

    Groups that have committed no offsets of these topics are left out. Raise ConfigError if no
    group has offsets of one of the topics, because a check of its lag would always succeed.
    """
    if not topics:
        return results
    known = {row.topic for lag in results for row in lag.partitions}
    if missing := [topic for topic in topics if topic not in known]:
        groups = text.first_of((lag.group for lag in results), 10) or "no group"
        raise ConfigError(
            f"--topic {missing[0]}: {groups} has no offsets of this topic. Check its name, or wait "
            "for the first commit."
        )
    chosen = [
        replace(lag, partitions=tuple(row for row in lag.partitions if row.topic in topics))
        for lag in results
    ]
    return [lag for lag in chosen if lag.partitions]


def _parse_limit(value: str | None) -> int | float | None:
    """Return a limit in records as an int, a limit in seconds as a float, or None."""
    if value is None:
        return None
    if value.isdecimal():
        return int(value)
    if (duration := parse_duration(value)) is not None:
        return duration.total_seconds()
    raise ConfigError(f"--fail-above {value!r} must be a number of records, or a time such as 30s.")


def _exceeds(lag: GroupLag, limit: int | float | None) -> bool:
    if isinstance(limit, float):
        return (lag.max_seconds or 0) > limit
    return limit is not None and lag.total > limit


def unknown_lags(results: list[GroupLag], *, seconds: bool) -> str:
    """Return a warning about partitions whose lag is unknown, or an empty text if there are none.

    With `seconds`, also name partitions for which the age of the first unread record is unknown. A
    check with a limit needs the warning, because an unknown lag does not exceed the limit.
    """
    rows = [row for lag in results for row in lag.partitions if row.committed is not None]
    without_end = [f"{row.topic}[{row.partition}]" for row in rows if row.lag is None]
    without_age = [
        f"{row.topic}[{row.partition}]"
        for row in rows
        if seconds and row.lag and row.lag_seconds is None
    ]
    parts = []
    if without_end:
        names = text.first_of(without_end, 10)
        parts.append(f"the lag of {names} is not known: without a leader, or deleted")
    if without_age:
        names = text.first_of(without_age, 10)
        parts.append(f"the age of the first unread record of {names} is not known")
    return "; ".join(parts)


def _print(results: list[GroupLag], *, seconds: bool, as_json: bool) -> None:
    if as_json:
        rows: list[dict[str, Any]] = [
            {
                "group": lag.group,
                "lag": lag.total,
                "lag_seconds": lag.max_seconds,
                "partitions": lag_rows(lag),
            }
            for lag in results
        ]
        text.print_json(rows)
        return
    for lag in results:
        age = "" if lag.max_seconds is None else f", {lag.max_seconds:.1f} s"
        text.console().print(f"group {lag.group}: lag {lag.total} records{age}")
        print_lag(lag, seconds=seconds)
