"""The `groups` commands for groups that Kafka coordinates."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import typer

from asyncconsumer.admin.reset_targets import parse_topic
from asyncconsumer.admin.results import GroupLag, OffsetChange
from asyncconsumer.cli import text
from asyncconsumer.cli.connect import make_admin
from asyncconsumer.errors import ConfigError
from asyncconsumer.types import TopicPartition


async def list_groups(options: dict[str, Any], *, as_json: bool) -> None:
    """Print all groups with their kind and state."""
    async with make_admin(options) as admin:
        groups = await admin.groups()
    if as_json:
        text.print_json([asdict(listing) for listing in groups])
        return
    table = text.table("group", "kind", "state")
    for listing in groups:
        table.add_row(*map(text.cell, (listing.group, listing.kind, listing.state)))
    text.console().print(table if groups else "There are no groups.")


async def describe(options: dict[str, Any], group: str, *, as_json: bool) -> None:
    """Print the partitions, offsets, lag and members of a group."""
    async with make_admin(options) as admin:
        description = await admin.describe_group(group)
        lag = await admin.lag(group)
    if as_json:
        text.print_json(asdict(description) | {"partitions": lag_rows(lag)})
        return
    out = text.console()
    out.print(
        f"group {description.group}, kind {description.kind}, state {description.state}, "
        f"assignor {description.assignor or '-'}, live members: {len(description.members)}"
    )
    print_lag(lag, seconds=False)
    for member in description.members:
        if not member.partitions:
            out.print(text.cell(f"member without partitions: {member.member_id}", "yellow"))


def lag_rows(lag: GroupLag) -> list[dict[str, Any]]:
    """Return the lag of each partition as an object for JSON."""
    return [asdict(row) for row in lag.partitions]


def print_lag(lag: GroupLag, *, seconds: bool) -> None:
    """Print the lag of a group as a table."""
    numbers = ("partition", "committed", "end", "lag", *(("seconds",) if seconds else ()))
    table = text.table("topic", *numbers, "member", "host", "client", right=numbers)
    for row in lag.partitions:
        age = None if row.lag_seconds is None else f"{row.lag_seconds:.1f}"
        table.add_row(
            text.cell(row.topic),
            text.cell(row.partition),
            text.cell(row.committed),
            text.cell(row.end),
            text.cell(row.lag, "bold" if row.lag else ""),
            *((text.cell(age),) if seconds else ()),
            text.cell(row.member_id),
            text.cell(row.host),
            text.cell(row.client_id),
        )
    text.console().print(
        table if lag.partitions else f"Group {lag.group} has no offsets and no partitions."
    )


async def reset(
    options: dict[str, Any],
    group: str,
    topics: Sequence[str],
    to: str | Mapping[TopicPartition, int],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Print the plan of an offset reset. With `yes`, apply it."""
    selection = selected(topics) or None
    async with make_admin(options) as admin:
        plan = await admin.reset_offsets(group, to, topics=selection, dry_run=not yes)
    if as_json:
        text.print_json([asdict(change) for change in plan])
    else:
        print_plan(group, plan)
    if all(change.before == change.after for change in plan):
        text.print_message("there is nothing to change", "green")
    elif yes:
        text.print_message("the offsets are committed", "green")
    else:
        text.print_message(
            "nothing was changed; repeat the command with --yes to apply the plan", "yellow"
        )
        raise typer.Exit(1)


def print_plan(group: str, plan: Sequence[OffsetChange]) -> None:
    """Print the changes of a group's offsets as a table."""
    numbers = ("partition", "now", "then")
    table = text.table("topic", *numbers, "note", right=numbers)
    for change in plan:
        style = "bold" if change.before != change.after else "dim"
        table.add_row(
            text.cell(change.topic),
            text.cell(change.partition),
            text.cell(change.before),
            text.cell(change.after, style),
            text.cell(change.note, "yellow"),
        )
    out = text.console()
    out.print(f"group {group}:")
    out.print(table)


async def delete(options: dict[str, Any], group: str, *, yes: bool, as_json: bool) -> None:
    """Delete a group without live members, and its offsets."""
    async with make_admin(options) as admin:
        description = await admin.describe_group(group)
        fields = {"group": group, "deleted": yes}
        if not yes:
            text.print_outcome(
                f"group {group} ({description.kind}, {description.state}) would be deleted; "
                "repeat the command with --yes",
                "yellow",
                fields,
                as_json=as_json,
            )
            raise typer.Exit(1)
        await admin.delete_group(group)
    text.print_outcome(f"deleted group {group}", "green", fields, as_json=as_json)


async def delete_offsets(
    options: dict[str, Any], group: str, topics: Sequence[str], *, yes: bool, as_json: bool
) -> None:
    """Delete the committed offsets of a group for some topics."""
    selection = selected(topics)
    async with make_admin(options) as admin:
        committed = await admin.committed(group)
        partitions = [tp for tp in committed if tp in selection or tp.topic in selection]
        if not partitions:
            raise ConfigError(f"Group {group!r} has no committed offset for {', '.join(topics)}.")
        names = text.first_of(map(str, partitions), 10)
        rows = [{"topic": topic, "partition": number} for topic, number in partitions]
        fields = {"group": group, "partitions": rows, "deleted": yes}
        if not yes:
            message = f"offsets of {names} would be deleted; repeat the command with --yes"
            text.print_outcome(message, "yellow", fields, as_json=as_json)
            raise typer.Exit(1)
        await admin.delete_offsets(group, partitions)
    text.print_outcome(f"deleted the offsets of {names}", "green", fields, as_json=as_json)


def selected(topics: Sequence[str]) -> list[str | TopicPartition]:
    """Return the topics and partitions that values of the option `--topic` name."""
    selection: list[str | TopicPartition] = []
    for topic, numbers in map(parse_topic, topics):
        if numbers is None:
            selection.append(topic)
        else:
            selection += [TopicPartition(topic, number) for number in numbers]
    return selection
