"""`asyncconsumer groups reset` and `migrate`: offsets, changed by a plan that is shown first."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

import typer

from asyncconsumer.cli import text
from asyncconsumer.cli.cluster_access import ClusterAccess, reach_of, zookeeper_of
from asyncconsumer.cli.groups.listing import rows_of
from asyncconsumer.cli.groups.state import SeenGroup, read_group
from asyncconsumer.cli.groups.target import ResetTarget, chosen, parse_target, parse_topic
from asyncconsumer.cli.properties import storage_of
from asyncconsumer.config import ClassicConfig
from asyncconsumer.errors import ConfigError, ConsumerError
from asyncconsumer.fetch.offset_lookup import list_offsets
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import TopicPartition


class Step(NamedTuple):
    """One partition's offset, before and after."""

    partition: TopicPartition
    before: int | None
    after: int
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What the user agrees to: that it is done, and that it is done to a group with members."""

    yes: bool
    force: bool


class NotAsWritten(ConsumerError):
    """What was committed is not what is there: somebody else commits as well."""

    def __init__(
        self, partition: TopicPartition, store: str, meant: int, found: int | None
    ) -> None:
        super().__init__(partition, store, meant, found)
        self.partition, self.store, self.meant, self.found = partition, store, meant, found

    def __str__(self) -> str:
        return (
            f"{self.partition} was set to {self.meant} in {self.store}, and {self.found} is there: "
            "somebody else commits for this group. Stop its members, and try again"
        )


async def reset(config: ClassicConfig, topics: Sequence[str], to: str, consent: Consent) -> None:
    """Set a group's offsets of some topics, where they are kept."""
    target, storage = parse_target(to), storage_of(config)
    wanted = [parse_topic(one)[0] for one in topics]
    async with _group(config, consent) as (reach, seen):
        partitions = chosen(topics, await reach.partitions(wanted))
        committed = await reach.store(seen.name, storage).load(partitions)
        steps = await _steps(reach, target, committed)
        await _carry_out(reach, seen, steps, storage, consent)


async def migrate(config: ClassicConfig, source: str, destination: str, consent: Consent) -> None:
    """Copy a group's offsets from one store to the other, where the other is not further."""
    if source == destination:
        raise ConfigError(f"--from and --to are both {source}: name two stores")
    async with _group(config, consent) as (reach, seen):
        steps = []
        for row in await rows_of(reach, seen, "dual", []):
            here, there = row.zookeeper, row.kafka
            if source == "kafka":
                here, there = there, here
            if here is not None:
                further = there is not None and there >= here
                why = "it is as far, or further" if further else ""
                steps.append(Step(row.partition, there, max(here, there or 0), why))
        await _carry_out(reach, seen, steps, destination, consent)


@asynccontextmanager
async def _group(
    config: ClassicConfig, consent: Consent
) -> AsyncIterator[tuple[ClusterAccess, SeenGroup]]:
    async with zookeeper_of(config) as session:
        seen = await read_group(session, config.group_id)
        if seen.members and not consent.force:
            raise ConfigError(
                f"group {seen.name!r} has live members ({_some(seen.members)}), which commit as "
                "well: stop them first, or give --force"
            )
        async with reach_of(config, session) as reach:
            yield reach, seen


async def _steps(
    reach: ClusterAccess, target: ResetTarget, committed: Mapping[TopicPartition, int | None]
) -> list[Step]:
    leaders = reach.kafka.leaders
    begins = await list_offsets(leaders, dict.fromkeys(committed, EARLIEST))
    ends = await list_offsets(leaders, dict.fromkeys(committed, LATEST))
    if target.moment is not None:
        found = await list_offsets(leaders, dict.fromkeys(committed, target.moment))
        return [
            Step(one, committed[one], (at if at.offset >= 0 else ends[one]).offset)
            for one, at in sorted(found.items())
        ]
    steps: list[Step] = []
    for one, before in sorted(committed.items()):
        begin, end = begins[one].offset, ends[one].offset
        if target.by is not None and before is None:
            raise ConfigError(
                f"{one} has no committed offset to count from: give an offset, a time, earliest or "
                "latest"
            )
        meant = target.offset if target.by is None else (before or 0) + target.by
        assert meant is not None
        after = min(max(meant, begin), end)
        why = "" if after == meant else f"{meant} is not in the log, which has {begin} to {end}"
        steps.append(Step(one, before, after, why))

    return steps


async def _carry_out(
    reach: ClusterAccess, seen: SeenGroup, steps: Sequence[Step], storage: str, consent: Consent
) -> None:
    _show(seen, steps, storage)
    changes = {step.partition: step.after for step in steps if step.before != step.after}
    if not changes and storage != "dual":  # of two stores one may be behind
        text.say("there is nothing to change", "green")
        return
    if not consent.yes:
        text.say("nothing was changed: this is the plan; give --yes to carry it out", "yellow")
        raise typer.Exit(1)
    wanted = {step.partition: step.after for step in steps} if storage == "dual" else changes
    await reach.store(seen.name, storage).commit(wanted)
    for store in ("zookeeper", "kafka") if storage == "dual" else (storage,):
        await _verify(reach, seen.name, store, wanted)
    text.say(f"{len(wanted)} offsets were written to {storage}, and read back", "green")
    await _look_again(reach, seen)


async def _verify(
    reach: ClusterAccess, group: str, store: str, wanted: Mapping[TopicPartition, int]
) -> None:
    found = await reach.store(group, store).load(wanted)
    for partition, offset in wanted.items():
        if found[partition] != offset:
            raise NotAsWritten(partition, store, offset, found[partition])


async def _look_again(reach: ClusterAccess, seen: SeenGroup) -> None:
    """Somebody may have joined between our look at the group and the change."""
    now = await read_group(reach.zookeeper, seen.name)
    if now.members:
        text.say(
            f"the group has live members ({_some(now.members)}): they go on from where they are, "
            "and may commit over it",
            "yellow",
        )


def _show(seen: SeenGroup, steps: Iterable[Step], storage: str) -> None:
    numbers = ("partition", "now", "then")
    table = text.table("topic", *numbers, "", right=numbers)
    for step in steps:
        table.add_row(
            text.cell(step.partition.topic),
            text.cell(step.partition.partition),
            text.cell(step.before),
            text.cell(step.after, "bold" if step.before != step.after else "dim"),
            text.cell(step.why, "yellow"),
        )
    out = text.console()
    out.print(f"group {seen.name}, offsets in {storage}:")
    out.print(table)


def _some(members: Collection[str]) -> str:
    names = sorted(members)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
