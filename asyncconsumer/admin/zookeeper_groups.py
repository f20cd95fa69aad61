"""The state of a ZooKeeper group, read by a client that is not a member."""

import contextlib
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from asyncconsumer.errors import BadZnode, ConfigError, NoNode
from asyncconsumer.group.zookeeper import registration
from asyncconsumer.group.zookeeper.assignors import consumer_of
from asyncconsumer.group.zookeeper.filters import StreamSubscription
from asyncconsumer.group.zookeeper.regex_matcher import TooManySteps
from asyncconsumer.offsets.zookeeper import ZooKeeperOffsets
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper.paths import CONSUMERS, GroupPaths, is_legal
from asyncconsumer.zookeeper.recipes import delete_if_exists
from asyncconsumer.zookeeper.session import ZooKeeperSession

_TIMEOUT_MS: Final = 10_000  # short, because a user is waiting
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_GENERATED_ID: Final = re.compile(r"(.+)-[0-9]{13}-[0-9a-f]{1,8}")  # host, milliseconds, random


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A live member of a group. If its registration cannot be read, `error` tells why."""

    consumer_id: str
    host: str | None  # known only from a generated consumer id
    subscription: StreamSubscription | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """The members of a group, the owners of its partitions, and its offsets in ZooKeeper."""

    name: str
    members: Mapping[str, MemberSnapshot] = field(default_factory=dict)
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()  # topics with a node for owners or offsets

    def owner(self, tp: TopicPartition) -> tuple[str | None, MemberSnapshot | None]:
        """Return the consumer thread id that owns a partition, and its member. Both may be None."""
        thread = self.owners.get(tp)
        return thread, None if thread is None else self.members.get(consumer_of(thread))

    def without_partitions(self) -> list[MemberSnapshot]:
        """Return the members that own no partition."""
        owning = {consumer_of(thread) for thread in self.owners.values()}
        return [member for name, member in self.members.items() if name not in owning]

    def subscribed(self, existing: Iterable[str]) -> set[str]:
        """Return the existing topics to which members subscribe."""
        names = list(existing)
        subscriptions = [
            member.subscription for member in self.members.values() if member.subscription
        ]
        topics: set[str] = set()
        for subscription in {each.key: each for each in subscriptions}.values():
            with contextlib.suppress(TooManySteps):  # members ignore such a pattern as well
                topics.update(subscription.topics(names, exclude_internal=True))
        return topics & set(names)


def zookeeper_offsets(zookeeper: ZooKeeperSession, group: str) -> ZooKeeperOffsets:
    """Return the offset store of a group in ZooKeeper, for a client that is not a member."""
    return ZooKeeperOffsets(
        zookeeper, group, epoch=lambda: zookeeper.epoch, patience_ms=_TIMEOUT_MS
    )


async def delete_tree(session: ZooKeeperSession, path: str) -> None:
    """Delete a znode and all znodes below it. A missing znode is no error."""
    for name in await _children(session, path):
        await delete_tree(session, f"{path}/{name}")
    await delete_if_exists(session, path)


async def count_members(session: ZooKeeperSession) -> dict[str, int]:
    """Return the number of live members of each group."""
    names = sorted(name for name in await _children(session, CONSUMERS) if is_legal(name))
    members = await session.children_of_many([GroupPaths(name).ids for name in names])
    return {name: len(ids or ()) for name, ids in zip(names, members, strict=True)}


async def read_group(session: ZooKeeperSession, group: str) -> GroupSnapshot:
    """Read the state of a group. Raise ConfigError if the group does not exist."""
    paths = GroupPaths(group)
    if await session.exists(paths.root) is None:
        similar = difflib.get_close_matches(group, sorted(await _children(session, CONSUMERS)), 1)
        hint = f" Did you mean {similar[0]!r}?" if similar else ""
        raise ConfigError(
            f"There is no group {group!r} in ZooKeeper at {session.config.zookeeper_connect}."
            f"{hint} Check the name with `asyncconsumer groups list`, and check the chroot."
        )
    members = await _read_members(session, paths)
    owned, owner_topics = await _partitions(session, paths.owners)
    committed, offset_topics = await _partitions(session, paths.offsets)
    nodes = await session.get_many([paths.owner(tp) for tp in owned])
    return GroupSnapshot(
        group,
        members,
        {
            tp: node.data.decode(errors="replace")
            for tp, node in zip(owned, nodes, strict=True)
            if node is not None and node.data
        },
        await zookeeper_offsets(session, group).load(committed),
        frozenset(owner_topics | offset_topics),
    )


async def _read_members(session: ZooKeeperSession, paths: GroupPaths) -> dict[str, MemberSnapshot]:
    names = sorted(await _children(session, paths.ids))
    node_paths = [f"{paths.ids}/{name}" for name in names]
    nodes = await session.get_many(node_paths)
    members = {}
    for name, path, node in zip(names, node_paths, nodes, strict=True):
        if node is None:
            continue  # the member left in the meantime
        match = _GENERATED_ID.fullmatch(name.removeprefix(f"{paths.group}_"))
        host = None if match is None else match[1]
        try:
            members[name] = MemberSnapshot(name, host, registration.read(path, node.data))
        except BadZnode as error:
            members[name] = MemberSnapshot(name, host, None, str(error))
    return members


async def _partitions(
    session: ZooKeeperSession, parent: str
) -> tuple[list[TopicPartition], set[str]]:
    """Return the partitions that have a znode below `parent`, sorted, and their topics."""
    topics = sorted(name for name in await _children(session, parent) if is_legal(name))
    nodes = await session.children_of_many([f"{parent}/{topic}" for topic in topics])
    partitions = [
        TopicPartition(topic, int(name))
        for topic, names in zip(topics, nodes, strict=True)
        for name in names or ()
        if _PARTITION.fullmatch(name) and int(name) < 2**31
    ]
    return sorted(partitions), set(topics)


async def _children(session: ZooKeeperSession, path: str) -> list[str]:
    try:
        return await session.children(path)
    except NoNode:
        return []
