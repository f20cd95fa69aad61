"""The commands `asyncconsumer groups list` and `groups describe`."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from asyncconsumer.admin.zookeeper_groups import (
    GroupSnapshot,
    MemberSnapshot,
    count_members,
    read_group,
)
from asyncconsumer.cli import text
from asyncconsumer.cli.cluster_access import ClusterAccess, open_cluster, open_zookeeper
from asyncconsumer.cli.properties import offset_storage
from asyncconsumer.config import ClassicConfig
from asyncconsumer.errors import ConsumerError
from asyncconsumer.fetch.list_offsets import OffsetLookup
from asyncconsumer.protocol.messages import LATEST
from asyncconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition with its owner, its committed offsets in both stores, and its log end."""

    partition: TopicPartition
    thread: str | None
    member: MemberSnapshot | None
    zookeeper: int | None
    kafka: int | None = None
    end: int | None = None

    @property
    def committed(self) -> int | None:
        """The offset at which a member would continue, which is the larger one of both stores."""
        offsets = (self.zookeeper, self.kafka)
        return max((offset for offset in offsets if offset is not None), default=None)

    @property
    def lag(self) -> int | None:
        """The number of offsets between the committed offset and the end of the log."""
        if self.end is None or self.committed is None:
            return None
        return max(0, self.end - self.committed)

    def as_json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
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
    """Print all groups and the number of live members of each."""
    async with open_zookeeper(config) as session:
        groups = await count_members(session)
    if as_json:
        text.print_json([{"group": name, "members": n} for name, n in groups.items()])
        return
    table = text.table("group", "live members", right=("live members",))
    for name, count in groups.items():
        table.add_row(text.cell(name), text.cell(count, "" if count else "dim"))
    text.console().print(table if groups else "There are no groups.")


async def describe(config: ClassicConfig, *, as_json: bool) -> None:
    """Print the partitions, offsets, lag, owners and members of a group."""
    storage = offset_storage(config)
    async with open_zookeeper(config) as session:
        group = await read_group(session, config.group_id)
        notes = [
            f"skipped a member: {member.error}" for member in group.members.values() if member.error
        ]
        rows = known_rows(group, group.offsets.keys() | group.owners.keys())
        try:
            async with open_cluster(config, session) as cluster:
                rows = await read_rows(cluster, group, storage, notes)
        except ConsumerError as error:  # print the state in ZooKeeper nevertheless
            notes.append(f"end offsets and offsets in Kafka are not available: {error}")
    if storage == "kafka":
        rows = [replace(row, zookeeper=None) for row in rows]
    if as_json:
        text.print_json(_as_json(group, rows, notes))
    else:
        _print(group, rows, storage)
        for note in notes:
            text.print_message(note, "yellow")


def known_rows(group: GroupSnapshot, partitions: Iterable[TopicPartition]) -> list[PartitionRow]:
    """Return a row for each partition, with only the values that ZooKeeper stores."""
    return [PartitionRow(tp, *group.owner(tp), group.offsets.get(tp)) for tp in sorted(partitions)]


async def read_rows(
    cluster: ClusterAccess, group: GroupSnapshot, storage: str, notes: list[str]
) -> list[PartitionRow]:
    """Return a row for each partition of a group, including the values that only brokers have.

    The partitions are those of the topics to which members subscribe, and all others with an owner
    or a committed offset. If end offsets are not available, append a text about that to `notes`.
    """
    subscribed = group.subscribed(await cluster.topic_names())
    topics = await cluster.partitions(sorted(subscribed | group.topics))
    existing = {
        TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers
    }
    listed = group.offsets.keys() | group.owners.keys()
    listed |= {tp for tp in existing if tp.topic in subscribed}
    in_kafka: dict[TopicPartition, int | None] = {}
    if storage != "zookeeper":
        in_kafka = await cluster.store(group.name, "kafka").load(existing)
        listed |= {tp for tp, offset in in_kafka.items() if offset is not None}
    ends = await _end_offsets(cluster, listed & existing, notes)
    return [
        replace(row, kafka=in_kafka.get(row.partition), end=ends.get(row.partition))
        for row in known_rows(group, listed)
    ]


async def _end_offsets(
    cluster: ClusterAccess, partitions: Iterable[TopicPartition], notes: list[str]
) -> dict[TopicPartition, int]:
    lookup = OffsetLookup(cluster.kafka.leaders, dict.fromkeys(partitions, LATEST))
    try:
        await lookup.run()
    except ConsumerError as error:  # use the offsets that were found before
        notes.append(f"some end offsets are not available: {error}")
    return {tp: listed.offset for tp, listed in lookup.offsets.items()}


def _as_json(group: GroupSnapshot, rows: list[PartitionRow], notes: list[str]) -> dict[str, Any]:
    idle = {member.consumer_id for member in group.without_partitions()}
    return {
        "group": group.name,
        "members": [
            {
                "consumer_id": member.consumer_id,
                "host": member.host,
                "pattern": _pattern(member),
                "subscription": dict(member.subscription.streams) if member.subscription else None,
                "has_partitions": member.consumer_id not in idle,
            }
            for member in group.members.values()
        ],
        "partitions": [row.as_json() for row in rows],
        "notes": notes,
    }


def _print(group: GroupSnapshot, rows: list[PartitionRow], storage: str) -> None:
    names = {"zookeeper": ["in ZooKeeper"], "kafka": ["in Kafka"]}
    stores = names.get(storage, ["in ZooKeeper", "in Kafka"])
    numbers = ("partition", *stores, "end", "lag")
    table = text.table("topic", *numbers, "owner", "host", "pattern", right=numbers)
    for row in rows:
        offsets = {"in ZooKeeper": row.zookeeper, "in Kafka": row.kafka}
        no_owner = text.cell("no owner", "bold red" if group.members else "dim")
        table.add_row(
            text.cell(row.partition.topic),
            text.cell(row.partition.partition),
            *(text.cell(offsets[store]) for store in stores),
            text.cell(row.end),
            text.cell(row.lag, "bold" if row.lag else ""),
            no_owner if row.thread is None else text.cell(row.thread),
            text.cell(row.member.host if row.member else None),
            text.cell(_pattern(row.member)),
        )
    out = text.console()
    out.print(f"group {group.name}, live members: {len(group.members)}")
    out.print(table if rows else "The group has no committed offsets and no subscribed topics.")
    for member in group.without_partitions():
        kind = "" if member.subscription is None else f" ({member.subscription.pattern.value})"
        out.print(text.cell(f"member without partitions: {member.consumer_id}{kind}", "yellow"))


def _pattern(member: MemberSnapshot | None) -> str | None:
    if member is None or member.subscription is None:
        return None
    return member.subscription.pattern.value
