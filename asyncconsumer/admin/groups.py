"""Admin operations on groups and their committed offsets."""

import difflib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, get_args

from asyncconsumer.admin.client import AdminClient, check
from asyncconsumer.admin.lag import partition_lags
from asyncconsumer.admin.reset_targets import ResetTarget, make_target
from asyncconsumer.admin.resets import plan_reset
from asyncconsumer.admin.results import (
    ConsumerGroupDescription,
    GroupKind,
    GroupLag,
    GroupListing,
    MemberDescription,
    OffsetChange,
)
from asyncconsumer.admin.zookeeper_groups import (
    GroupSnapshot,
    count_members,
    delete_tree,
    read_group,
    zookeeper_offsets,
)
from asyncconsumer.errors import (
    ConfigError,
    GroupActive,
    GroupIdNotFound,
    MalformedConsumerProtocol,
    UnknownTopicOrPartition,
    UnsupportedBroker,
    UnsupportedVersion,
)
from asyncconsumer.group.zookeeper.assignors import consumer_of
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.protocol.admin_groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
)
from asyncconsumer.protocol.classic_group import DescribeGroupsRequest
from asyncconsumer.protocol.offset_commit import OffsetFetchRequest
from asyncconsumer.protocol.subscription_codec import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper.paths import GroupPaths
from asyncconsumer.zookeeper.recipes import delete_if_exists
from asyncconsumer.zookeeper.session import ZooKeeperSession

GroupStore: TypeAlias = Literal["kafka", "zookeeper"]
"""The system that coordinates a group."""
ResetTo: TypeAlias = str | int | datetime | timedelta | Mapping[TopicPartition, int]
"""The target of an offset reset; see `Admin.reset_offsets`."""

_KINDS: Final = frozenset(get_args(GroupKind))
_DEAD: Final = "Dead"


class GroupOperations:
    """A base class of `Admin` with the operations on groups.

    `store` says which system coordinates a group. By default it is ZooKeeper if the client has a
    ZooKeeper session and the group exists there, otherwise Kafka.
    """

    _client: AdminClient

    async def groups(self) -> list[GroupListing]:
        """Return the groups in Kafka, and in ZooKeeper if there is a session, sorted by name."""

        async def ask() -> list[GroupListing]:
            listed = []
            for response in await self._client.ask_all(ListGroupsRequest):
                check(response["error_code"], "the groups of the cluster")
                listed += [_listing(row) for row in response["groups"]]
            return listed

        groups = await self._client.retry(ask)
        if self._client.zookeeper is not None:
            counts = await count_members(self._client.zookeeper)
            groups += [
                GroupListing(name, "zookeeper", "Stable" if count else "Empty", count)
                for name, count in counts.items()
            ]
        return sorted(groups, key=lambda listing: (listing.group, listing.kind))

    async def describe_group(
        self, group: str, *, store: GroupStore | None = None
    ) -> ConsumerGroupDescription:
        """Return the state of a group, with its members and their partitions.

        A group that does not exist raises `GroupIdNotFound`, or `ConfigError` in ZooKeeper.
        """
        session = await self._session_of(group, store)
        if session is not None:
            return _from_snapshot(await read_group(session, group))
        coordinator = self._client.coordinator(group)
        try:
            row = await self._group_row(coordinator, ConsumerGroupDescribeRequest(group))
        except (UnsupportedBroker, UnsupportedVersion, GroupIdNotFound):
            return await self._describe_classic(coordinator)
        return _from_consumer(row)

    async def committed(
        self, group: str, *, store: GroupStore | None = None
    ) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition that has one."""
        session = await self._session_of(group, store)
        if session is not None:
            snapshot = await read_group(session, group)
            return {tp: offset for tp, offset in snapshot.offsets.items() if offset is not None}
        coordinator = self._client.coordinator(group)

        async def ask() -> dict[TopicPartition, int]:
            response = await self._client.ask_coordinator(
                coordinator, OffsetFetchRequest(group, None)
            )
            check(response.get("error_code", 0), f"group {group!r}")
            offsets = {}
            for topic in response["topics"]:
                for row in topic["partitions"]:
                    tp = TopicPartition(topic["name"], row["partition"])
                    check(row["error_code"], f"{tp} in group {group!r}")
                    if row["offset"] >= 0:
                        offsets[tp] = row["offset"]
            return dict(sorted(offsets.items()))

        return await self._client.retry(ask)

    async def lag(
        self,
        group: str,
        *,
        seconds: bool = False,
        store: GroupStore | None = None,
        description: ConsumerGroupDescription | None = None,
    ) -> GroupLag:
        """Return the lag of each partition in records.

        With `seconds`, also return the age of the first record that is not committed, in seconds.
        That takes one fetch from each leader. If the caller passes a `description` of the group, it
        is not requested again.
        """
        description = description or await self.describe_group(group, store=store)
        committed = await self.committed(group, store=store)
        rows = await partition_lags(self._client, description, committed, seconds=seconds)
        return GroupLag(group, rows)

    async def reset_offsets(
        self,
        group: str,
        to: ResetTo,
        *,
        topics: Iterable[str | TopicPartition] | None = None,
        dry_run: bool = False,
        store: GroupStore | None = None,
    ) -> list[OffsetChange]:
        """Set the committed offsets of a group without live members. Return the changes.

        `to` is "earliest", "latest", an offset, "+N" or "-N" from the committed offset, a datetime,
        a timedelta before now, or offsets by partition. Without `topics`, all partitions with a
        committed offset change. With `dry_run`, nothing is changed. A group with live members
        raises `GroupActive`. Offsets outside the log become its first or last offset.
        """
        target = to if isinstance(to, Mapping) else make_target(to)
        await self._check_inactive(group, store)
        committed = await self._selected(group, target, topics, store)
        plan = await plan_reset(self._client.kafka.leaders, target, committed)
        changes = {change.tp: change.after for change in plan if change.before != change.after}
        if changes and not dry_run:
            await (await self._offsets(group, store)).commit(changes)
        return plan

    async def delete_group(self, group: str, *, store: GroupStore | None = None) -> None:
        """Delete a group without live members, and its offsets."""
        session = await self._session_of(group, store)
        if session is not None:
            await self._check_inactive(group, "zookeeper")
            await delete_tree(session, GroupPaths(group).root)
            return
        coordinator = self._client.coordinator(group)

        async def ask() -> None:
            response = await self._client.ask_coordinator(coordinator, DeleteGroupsRequest(group))
            for row in response["results"]:
                check(row["error_code"], f"group {group!r}")

        await self._client.retry(ask)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, store: GroupStore | None = None
    ) -> None:
        """Delete committed offsets of a group.

        Raise an error if live members subscribe to a topic of the partitions. A ZooKeeper group
        must have no live members at all.
        """
        tps = sorted(TopicPartition(*tp) for tp in partitions)
        session = await self._session_of(group, store)
        if session is not None:
            await self._check_inactive(group, "zookeeper")
            for tp in tps:
                await delete_if_exists(session, GroupPaths(group).offset(tp))
            return
        by_topic: dict[str, list[int]] = {}
        for tp in tps:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        coordinator = self._client.coordinator(group)

        async def ask() -> None:
            request = OffsetDeleteRequest(group, by_topic)
            response = await self._client.ask_coordinator(coordinator, request)
            check(response["error_code"], f"group {group!r}")
            for topic in response["topics"]:
                for row in topic["partitions"]:
                    tp = TopicPartition(topic["name"], row["partition"])
                    check(row["error_code"], f"{tp} in group {group!r}")

        await self._client.retry(ask)

    async def _describe_classic(self, coordinator: Coordinator) -> ConsumerGroupDescription:
        group = coordinator.group_id
        with suppress(GroupIdNotFound):
            row = await self._group_row(coordinator, DescribeGroupsRequest(group))
            if row["group_state"] != _DEAD:
                return _from_classic(row)
        for listing in await self.groups():
            if listing.group == group and listing.kind in ("share", "streams"):
                raise ConfigError(
                    f"Group {group!r} is of the kind {listing.kind}, and such groups are only "
                    f"listed. Use Kafka's kafka-{listing.kind}-groups.sh."
                )
        raise GroupIdNotFound(f"group {group!r}{await self._similar(group)}")

    async def _group_row(
        self,
        coordinator: Coordinator,
        message: ConsumerGroupDescribeRequest | DescribeGroupsRequest,
    ) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            response = await self._client.ask_coordinator(coordinator, message)
            (row,) = response["groups"]
            check(row["error_code"], f"group {coordinator.group_id!r}")
            return dict(row)

        return await self._client.retry(ask)

    async def _similar(self, group: str) -> str:
        """Return a question with the most similar name of a group, for an error message.

        Return an empty text if no name is similar.
        """
        names = {listing.group for listing in await self.groups()} - {group}
        matches = difflib.get_close_matches(group, sorted(names), 1)
        return f" (did you mean {matches[0]!r}?)" if matches else ""

    async def _session_of(self, group: str, store: GroupStore | None) -> ZooKeeperSession | None:
        """Return the ZooKeeper session if ZooKeeper coordinates the group, otherwise None."""
        session = self._client.zookeeper
        if store == "zookeeper" and session is None:
            raise ConfigError("this admin client has no ZooKeeper: set `zookeeper_connect`")
        if store == "kafka" or session is None:
            return None
        if store is None and await session.exists(GroupPaths(group).root) is None:
            return None
        return session

    async def _check_inactive(self, group: str, store: GroupStore | None) -> None:
        with suppress(GroupIdNotFound):
            description = await self.describe_group(group, store=store)
            if description.members:
                raise GroupActive(group, [member.member_id for member in description.members])

    async def _offsets(self, group: str, store: GroupStore | None) -> OffsetStore:
        session = await self._session_of(group, store)
        if session is not None:
            return zookeeper_offsets(session, group)
        return KafkaOffsets(
            self._client.coordinator(group),
            patience_ms=self._client.patience_ms,
            randomness=self._client.randomness,
        )

    async def _selected(
        self,
        group: str,
        target: ResetTarget | Mapping[TopicPartition, int],
        topics: Iterable[str | TopicPartition] | None,
        store: GroupStore | None,
    ) -> dict[TopicPartition, int | None]:
        """Return the partitions whose offsets are to be reset, with their committed offsets."""
        committed = await self.committed(group, store=store)
        selection: list[str | TopicPartition]
        if topics is not None:
            selection = list(topics)
        elif isinstance(target, Mapping):
            selection = [TopicPartition(*tp) for tp in target]
        elif committed:
            selection = list(committed)
        else:
            hint = await self._similar(group)
            raise ConfigError(
                f"Group {group!r}{hint} has no committed offsets to reset. Check its name, or name "
                "the topics for which offsets are to be committed."
            )
        names = {entry if isinstance(entry, str) else entry[0] for entry in selection}
        existing = await self._client.existing(names)
        selected: set[TopicPartition] = set()
        for entry in selection:
            if isinstance(entry, str):
                matching = {tp for tp in existing if tp.topic == entry}
            else:
                matching = existing & {TopicPartition(*entry)}
            if not matching and topics is None and not isinstance(target, Mapping):
                continue  # a committed offset of a topic that was deleted
            if not matching:
                raise UnknownTopicOrPartition(f"{entry}")
            selected |= matching
        if isinstance(target, Mapping):
            selected &= target.keys()
        return {tp: committed.get(tp) for tp in sorted(selected)}


def _listing(row: Mapping[str, Any]) -> GroupListing:
    kind = str(row.get("group_type") or "classic").lower()
    state = row.get("group_state") or None
    return GroupListing(row["group_id"], kind if kind in _KINDS else "classic", state)  # type: ignore[arg-type] # checked


def _from_consumer(row: Mapping[str, Any]) -> ConsumerGroupDescription:
    members = []
    for member in row["members"]:
        regex = member["subscribed_topic_regex"]
        members.append(
            MemberDescription(
                member["member_id"],
                member["client_id"],
                member["client_host"],
                member["instance_id"],
                (*sorted(member["subscribed_topic_names"]), *([regex] if regex else [])),
                {
                    topic["topic_name"]: tuple(sorted(topic["partitions"]))
                    for topic in member["assignment"]["topic_partitions"]
                },
            )
        )
    return ConsumerGroupDescription(
        row["group_id"], "consumer", row["group_state"], row["assignor_name"], tuple(members)
    )


def _from_classic(row: Mapping[str, Any]) -> ConsumerGroupDescription:
    is_consumer = row["protocol_type"] == PROTOCOL_TYPE
    members = tuple(_classic_member(member, is_consumer=is_consumer) for member in row["members"])
    return ConsumerGroupDescription(
        row["group_id"], "classic", row["group_state"], row["protocol"] or None, members
    )


def _classic_member(row: Mapping[str, Any], *, is_consumer: bool) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assignment: dict[str, list[int]] = {}
    if is_consumer:
        # members with other clients may send bytes in an unknown format
        with suppress(MalformedConsumerProtocol):
            if row["metadata"]:
                topics = tuple(sorted(ConsumerProtocolSubscription.decode(row["metadata"]).topics))
            if row["assignment"]:
                decoded = ConsumerProtocolAssignment.decode(row["assignment"])
                for tp in sorted(decoded.assigned_partitions):
                    assignment.setdefault(tp.topic, []).append(tp.partition)
    return MemberDescription(
        row["member_id"],
        row["client_id"],
        row["client_host"],
        row.get("group_instance_id"),
        topics,
        {topic: tuple(numbers) for topic, numbers in assignment.items()},
    )


def _from_snapshot(snapshot: GroupSnapshot) -> ConsumerGroupDescription:
    owned: dict[str, dict[str, list[int]]] = {}
    for tp, thread in sorted(snapshot.owners.items()):
        by_topic = owned.setdefault(consumer_of(thread), {})
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    members = tuple(
        MemberDescription(
            name,
            None,
            member.host,
            None,
            () if member.subscription is None else tuple(sorted(member.subscription.streams)),
            {topic: tuple(numbers) for topic, numbers in owned.get(name, {}).items()},
        )
        for name, member in snapshot.members.items()
    )
    state = "Stable" if members else "Empty"
    return ConsumerGroupDescription(snapshot.name, "zookeeper", state, None, members)
