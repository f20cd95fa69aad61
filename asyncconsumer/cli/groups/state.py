"""What a group has in ZooKeeper, as somebody who is not in it sees it."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from asyncconsumer.cli.cluster_access import offsets_in
from asyncconsumer.errors import BadZnode, ConfigError, NoNode
from asyncconsumer.group.zookeeper import registration
from asyncconsumer.group.zookeeper.assignors import consumer_of
from asyncconsumer.group.zookeeper.filters import StreamSubscription
from asyncconsumer.group.zookeeper.regex_matcher import TooManySteps
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper.paths import CONSUMERS, GroupPaths, is_legal
from asyncconsumer.zookeeper.session import ZooKeeperSession

_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_MADE_UP: Final = re.compile(r"(.+)-[0-9]{13}-[0-9a-f]{1,8}")  # host, milliseconds, chance


@dataclass(frozen=True, slots=True)
class SeenMember:
    """A live member, by its registration; one that makes no sense has a trouble instead."""

    consumer_id: str
    host: str | None
    subscription: StreamSubscription | None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """Its members, who reads what, and how far."""

    name: str
    members: Mapping[str, SeenMember] = field(default_factory=dict)
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()  # that it has, or once had, something of

    def owner(self, partition: TopicPartition) -> tuple[str | None, SeenMember | None]:
        """The thread that reads a partition, and its member."""
        thread = self.owners.get(partition)
        return thread, None if thread is None else self.members.get(consumer_of(thread))

    def without_partitions(self) -> list[SeenMember]:
        """Members that read nothing."""
        busy = {consumer_of(thread) for thread in self.owners.values()}
        return [member for name, member in self.members.items() if name not in busy]

    def subscribed(self, existing: Iterable[str]) -> set[str]:
        """The topics that its members mean, of those that there are."""
        there = list(existing)
        subscriptions = [one.subscription for one in self.members.values() if one.subscription]
        found: set[str] = set()
        for subscription in {one.key: one for one in subscriptions}.values():
            with contextlib.suppress(TooManySteps):  # members ignore such a pattern as well
                found.update(subscription.topics(there, exclude_internal=True))
        return found & set(there)


async def count_members(session: ZooKeeperSession) -> dict[str, int]:
    """All groups, and how many live members each has."""
    names = sorted(name for name in await _children(session, CONSUMERS) if is_legal(name))
    found = await session.children_of_many([GroupPaths(name).ids for name in names])
    return {name: len(members or ()) for name, members in zip(names, found, strict=True)}


async def read_group(session: ZooKeeperSession, group: str) -> SeenGroup:
    """All of a group; ConfigError if there is none of that name."""
    paths = GroupPaths(group)
    if await session.exists(paths.root) is None:
        raise ConfigError(
            f"there is no group {group!r} in ZooKeeper at {session.config.zookeeper_connect}: see "
            "`asyncconsumer groups list`, and check the chroot"
        )
    members = await _read_members(session, paths)
    owned, owner_topics = await _partitions(session, paths.owners)
    kept, offset_topics = await _partitions(session, paths.offsets)
    nodes = await session.get_many([paths.owner(one) for one in owned])
    return SeenGroup(
        group,
        members,
        {
            one: node.data.decode(errors="replace")
            for one, node in zip(owned, nodes, strict=True)
            if node is not None and node.data
        },
        await offsets_in(session, group).load(kept),
        frozenset(owner_topics | offset_topics),
    )


async def _read_members(session: ZooKeeperSession, paths: GroupPaths) -> dict[str, SeenMember]:
    names = sorted(await _children(session, paths.ids))
    where = [f"{paths.ids}/{name}" for name in names]
    found = {}
    for name, path, node in zip(names, where, await session.get_many(where), strict=True):
        if node is None:
            continue  # it left meanwhile
        own = name.removeprefix(f"{paths.group}_")
        made_up = _MADE_UP.fullmatch(own)
        host = None if made_up is None else made_up[1]
        try:
            found[name] = SeenMember(name, host, registration.read(path, node.data))
        except BadZnode as error:
            found[name] = SeenMember(name, host, None, str(error))
    return found


async def _partitions(
    session: ZooKeeperSession, parent: str
) -> tuple[list[TopicPartition], set[str]]:
    """The partitions that have a node below a parent, in order, and the topics there."""
    topics = sorted(name for name in await _children(session, parent) if is_legal(name))
    numbers = await session.children_of_many([f"{parent}/{topic}" for topic in topics])
    found = [
        TopicPartition(topic, int(number))
        for topic, of in zip(topics, numbers, strict=True)
        for number in of or ()
        if _PARTITION.fullmatch(number) and int(number) < 2**31
    ]
    return sorted(found), set(topics)


async def _children(session: ZooKeeperSession, path: str) -> list[str]:
    try:
        return await session.children(path)
    except NoNode:
        return []
