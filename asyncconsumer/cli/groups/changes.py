"""The commands `asyncconsumer groups reset` and `groups migrate`, which print a plan first."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import typer

from asyncconsumer.admin.reset_targets import (
    ResetTarget,
    parse_target,
    parse_topic,
    select_partitions,
)
from asyncconsumer.admin.resets import plan_reset
from asyncconsumer.admin.results import OffsetChange
from asyncconsumer.admin.zookeeper_groups import GroupSnapshot, read_group
from asyncconsumer.cli import text
from asyncconsumer.cli.cluster_access import ClusterAccess, open_cluster, open_zookeeper
from asyncconsumer.cli.groups.listing import read_rows
from asyncconsumer.cli.properties import offset_storage
from asyncconsumer.config import ClassicConfig
from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The options `--yes`, which applies the plan, and `--force`, which allows live members.

    With `as_json`, the plan is printed as JSON.
    """

    yes: bool
    force: bool
    as_json: bool = False


class ConcurrentCommit(ConsumerError):
    """An error because another client committed offsets of a group while a command changed them."""

    def __init__(
        self, partition: TopicPartition, store: str, written: int, current: int | None
    ) -> None:
        super().__init__(partition, store, written, current)
        self.partition, self.store, self.written, self.current = partition, store, written, current

    def __str__(self) -> str:
        return (
            f"The offset of {self.partition} in {self.store} was set to {self.written}, and is "
            f"{self.current} now: another client commits for this group. Stop the members of the "
            "group, and repeat the command."
        )


async def reset(
    config: ClassicConfig,
    topics: Sequence[str],
    to: str | Mapping[TopicPartition, int],
    confirmation: Confirmation,
) -> None:
    """Set the offsets of a group in the offset store that the group uses.

    Without `topics`, the partitions are those in `to`, or all with a committed offset.
    """
    target = parse_target(to) if isinstance(to, str) else to
    storage = offset_storage(config)
    values = topics
    if not isinstance(target, ResetTarget):
        values = topics or [f"{tp.topic}:{tp.partition}" for tp in target]
    names = [parse_topic(value)[0] for value in values]
    async with _open_group(config, confirmation) as (cluster, group):
        if values:
            partitions = select_partitions(values, await cluster.partitions(names))
        else:
            partitions = await _committed(cluster, group, storage)
        if not isinstance(target, ResetTarget):
            partitions = [tp for tp in partitions if tp in target]
        committed = await cluster.store(group.name, storage).load(partitions)
        plan = await plan_reset(cluster.kafka.leaders, target, committed)
        await _apply(cluster, group, plan, storage, confirmation)


async def migrate(
    config: ClassicConfig, source: str, destination: str, confirmation: Confirmation
) -> None:
    """Copy the offsets of a group to another store. Larger offsets in that store are kept."""
    if source == destination:
        raise ConfigError(f"--from and --to are both {source}. Name two different stores.")
    async with _open_group(config, confirmation) as (cluster, group):
        plan = []
        for row in await read_rows(cluster, group, "dual", []):
            old, new = row.kafka, row.zookeeper
            if source == "kafka":
                old, new = new, old
            if new is not None:
                unchanged = old is not None and old >= new
                note = "unchanged, not smaller than the source" if unchanged else ""
                plan.append(OffsetChange(*row.partition, old, max(new, old or 0), note))
        await _apply(cluster, group, plan, destination, confirmation)


async def _committed(
    cluster: ClusterAccess, group: GroupSnapshot, storage: str
) -> list[TopicPartition]:
    """Return the existing partitions with a committed offset in the offset store of the group."""
    rows = [
        row
        for row in await read_rows(cluster, group, storage, [])
        if (row.kafka if storage == "kafka" else row.committed) is not None
    ]
    existing = await cluster.partitions({row.partition.topic for row in rows})
    rows = [row for row in rows if row.partition.partition in existing.get(row.partition.topic, ())]
    if not rows:
        raise ConfigError(
            f"Group {group.name!r} has no committed offsets to reset. Name the topics for which "
            "offsets are to be committed with --topic."
        )
    return [row.partition for row in rows]


@asynccontextmanager
async def _open_group(
    config: ClassicConfig, confirmation: Confirmation
) -> AsyncIterator[tuple[ClusterAccess, GroupSnapshot]]:
    async with open_zookeeper(config) as session:
        group = await read_group(session, config.group_id)
        if group.members and not confirmation.force:
            raise ConfigError(
                f"Group {group.name!r} has live members ({_names(group)}), which also commit. "
                "Stop them first, or set --force."
            )
        async with open_cluster(config, session) as cluster:
            yield cluster, group


async def _apply(
    cluster: ClusterAccess,
    group: GroupSnapshot,
    plan: Sequence[OffsetChange],
    storage: str,
    confirmation: Confirmation,
) -> None:
    if confirmation.as_json:
        text.print_json([asdict(change) for change in plan])
    else:
        _show(group, plan, storage)
    offsets = {
        change.tp: change.after
        for change in plan
        # with two stores, the smaller one may differ even if the larger one does not change
        if change.before != change.after or storage == "dual"
    }
    if not offsets:
        text.print_message("there is nothing to change", "green")
        return
    if not confirmation.yes:
        text.print_message(
            "nothing was changed; repeat the command with --yes to apply the plan", "yellow"
        )
        raise typer.Exit(1)
    await cluster.store(group.name, storage).commit(offsets)
    for store in ("zookeeper", "kafka") if storage == "dual" else (storage,):
        await _verify(cluster, group.name, store, offsets)
    text.print_message(f"committed and verified {len(offsets)} offsets in {storage}", "green")
    await _warn_of_members(cluster, group.name)


async def _verify(
    cluster: ClusterAccess, group: str, store: str, offsets: Mapping[TopicPartition, int]
) -> None:
    committed = await cluster.store(group, store).load(offsets)
    for tp, offset in offsets.items():
        if committed[tp] != offset:
            raise ConcurrentCommit(tp, store, offset, committed[tp])


async def _warn_of_members(cluster: ClusterAccess, name: str) -> None:
    """Print a warning if the group has live members.

    This is called after offsets were changed, because a member may have joined meanwhile.
    """
    group = await read_group(cluster.zookeeper, name)
    if group.members:
        text.print_message(
            f"warning: the group has live members ({_names(group)}), which continue at their own "
            "positions and may overwrite the offsets",
            "yellow",
        )


def _show(group: GroupSnapshot, plan: Iterable[OffsetChange], storage: str) -> None:
    numbers = ("partition", "now", "then")
    table = text.table("topic", *numbers, "note", right=numbers)
    for change in plan:
        table.add_row(
            text.cell(change.topic),
            text.cell(change.partition),
            text.cell(change.before),
            text.cell(change.after, "bold" if change.before != change.after else "dim"),
            text.cell(change.note, "yellow"),
        )
    out = text.console()
    out.print(f"group {group.name}, offsets in {storage}:")
    out.print(table)


def _names(group: GroupSnapshot) -> str:
    return text.first_of(sorted(group.members), 3)
