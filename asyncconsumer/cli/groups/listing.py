"""`asyncconsumer groups list` and `describe`: what groups there are, and how far they are."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from asyncconsumer.cli import text
from asyncconsumer.cli.cluster_access import ClusterAccess, reach_of, zookeeper_of
from asyncconsumer.cli.groups.state import SeenGroup, SeenMember, count_members, read_group
from asyncconsumer.cli.properties import storage_of
from asyncconsumer.config import ClassicConfig
from asyncconsumer.errors import ConsumerError
from asyncconsumer.fetch.offset_lookup import OffsetLookup
from asyncconsumer.protocol.messages import LATEST
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Row:
    """A partition, and how far a group has got in it."""

    partition: TopicPartition
    thread: str | None
    member: SeenMember | None
    zookeeper: int | None
    kafka: int | None = None
    end: int | None = None

    @property
    def committed(self) -> int | None:
        """Where a member would go on: the larger, if there are two."""
        return max((at for at in (self.zookeeper, self.kafka) if at is not None), default=None)

    @property
    def lag(self) -> int | None:
        """How much is still to be read."""
        if self.end is None or self.committed is None:
            return None
        return max(0, self.end - self.committed)

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "zookeeper_offset": self.zookeeper,
            "kafka_offset": self.kafka,
            "end_offset": self.end,
            "lag": self.lag,
            "owner": self.thread,
            "host": self.member.host if self.member else None,
            "pattern": _pattern(self.member),
        }


async def list_groups(config: ClassicConfig, *, as_json: bool) -> None:
    """Print all groups, and how many live members each has."""
    async with zookeeper_of(config) as session:
        groups = await count_members(session)
    if as_json:
        text.print_json([{"group": name, "members": n} for name, n in groups.items()])
        return
    table = text.table("group", "live members", right=("live members",))
    for name, count in groups.items():
        table.add_row(text.cell(name), text.cell(count, "" if count else "dim"))
    text.console().print(table if groups else "no groups")


async def describe(config: ClassicConfig, *, as_json: bool) -> None:
    """Print a group's partitions, offsets, lag, owners and members."""
    storage = storage_of(config)
    async with zookeeper_of(config) as session:
        seen = await read_group(session, config.group_id)
        notes = [f"left out: {one.trouble}" for one in seen.members.values() if one.trouble]
        rows = known_rows(seen, seen.offsets.keys() | seen.owners.keys())
        try:
            async with reach_of(config, session) as reach:
                rows = await rows_of(reach, seen, storage, notes)
        except ConsumerError as error:  # what ZooKeeper has is worth seeing all the same
            notes.append(f"without what brokers know: {error}")
    if storage == "kafka":
        rows = [replace(row, zookeeper=None) for row in rows]
    if as_json:
        text.print_json(_as_json(seen, rows, notes))
    else:
        _print(seen, rows, storage)
        for note in notes:
            text.say(note, "yellow")


def known_rows(seen: SeenGroup, partitions: Iterable[TopicPartition]) -> list[Row]:
    """What ZooKeeper has of these partitions."""
    return [Row(one, *seen.owner(one), seen.offsets.get(one)) for one in sorted(partitions)]


async def rows_of(
    reach: ClusterAccess, seen: SeenGroup, storage: str, notes: list[str]
) -> list[Row]:
    """Every partition that the group has to do with, with what brokers know of it.

    These are the partitions of topics that its members subscribe to, and any others that have an
    owner or an offset.
    """
    subscribed = seen.subscribed(await reach.topic_names())
    there = await reach.partitions(sorted(subscribed | seen.topics))
    existing = {TopicPartition(topic, n) for topic, of in there.items() for n in of}
    wanted = seen.offsets.keys() | seen.owners.keys()
    wanted |= {one for one in existing if one.topic in subscribed}
    in_kafka: dict[TopicPartition, int | None] = {}
    if storage != "zookeeper":
        in_kafka = await reach.store(seen.name, "kafka").load(existing)
        wanted |= {one for one, offset in in_kafka.items() if offset is not None}
    ends = await _ends(reach, wanted & existing, notes)
    return [
        replace(row, kafka=in_kafka.get(row.partition), end=ends.get(row.partition))
        for row in known_rows(seen, wanted)
    ]


async def _ends(
    reach: ClusterAccess, partitions: Iterable[TopicPartition], notes: list[str]
) -> dict[TopicPartition, int]:
    lookup = OffsetLookup(reach.kafka.leaders, dict.fromkeys(partitions, LATEST))
    try:
        await lookup.run()
    except ConsumerError as error:  # those that could be had are there
        notes.append(f"not all ends of logs are known: {error}")
    return {one: listed.offset for one, listed in lookup.found.items()}


def _as_json(seen: SeenGroup, rows: list[Row], notes: list[str]) -> dict[str, Any]:
    idle = {member.consumer_id for member in seen.without_partitions()}
    return {
        "group": seen.name,
        "members": [
            {
                "consumer_id": member.consumer_id,
                "host": member.host,
                "pattern": _pattern(member),
                "subscription": dict(member.subscription.streams) if member.subscription else None,
                "has_partitions": member.consumer_id not in idle,
            }
            for member in seen.members.values()
        ],
        "partitions": [row.as_json() for row in rows],
        "notes": notes,
    }


def _print(seen: SeenGroup, rows: list[Row], storage: str) -> None:
    names = {"zookeeper": ["in ZooKeeper"], "kafka": ["in Kafka"]}
    stores = names.get(storage, ["in ZooKeeper", "in Kafka"])
    numbers = ("partition", *stores, "end", "lag")
    table = text.table("topic", *numbers, "owner", "host", "pattern", right=numbers)
    for row in rows:
        offsets = {"in ZooKeeper": row.zookeeper, "in Kafka": row.kafka}
        nobody = text.cell("nobody", "bold red" if seen.members else "dim")
        table.add_row(
            text.cell(row.partition.topic),
            text.cell(row.partition.partition),
            *(text.cell(offsets[store]) for store in stores),
            text.cell(row.end),
            text.cell(row.lag, "bold" if row.lag else ""),
            nobody if row.thread is None else text.cell(row.thread),
            text.cell(row.member.host if row.member else None),
            text.cell(_pattern(row.member)),
        )
    out = text.console()
    out.print(f"group {seen.name}: live members: {len(seen.members)}")
    out.print(table if rows else "it has no offsets, and nobody reads for it")
    for member in seen.without_partitions():
        what = "" if member.subscription is None else f", {member.subscription.pattern.value}"
        out.print(text.cell(f"without partitions: {member.consumer_id}{what}", "yellow"))


def _pattern(member: SeenMember | None) -> str | None:
    if member is None or member.subscription is None:
        return None
    return member.subscription.pattern.value
