"""Admin operations on topics, leaders and ACLs."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from asyncconsumer.admin.client import AdminClient, check
from asyncconsumer.admin.lag import find_ranges, read_last
from asyncconsumer.admin.results import (
    AclEntry,
    BrokerDescription,
    ConfigEntry,
    LogRange,
    PartitionDescription,
    TopicDescription,
)
from asyncconsumer.errors import ElectionNotNeeded, LeaderNotAvailable, UnknownTopicOrPartition
from asyncconsumer.net.metadata import NO_LEADER, Metadata
from asyncconsumer.protocol.admin_topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    ElectPreferredLeadersRequest,
    IncrementalAlterConfigsRequest,
)
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import TopicPartition

_TIMEOUT_MS: Final = 20_000  # for the broker, less than the timeout of a request
_INTERNAL: Final = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"}
)
_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "static broker config",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
_RESOURCE_TYPES: Final = {
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional_id",
    6: "delegation_token",
    7: "user",
}
_PATTERNS: Final = {3: "literal", 4: "prefixed"}
_OPERATIONS: Final = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster_action",
    10: "describe_configs",
    11: "alter_configs",
    12: "idempotent_write",
    13: "create_tokens",
    14: "describe_tokens",
    15: "two_phase_commit",
}
_PERMISSIONS: Final = {2: "deny", 3: "allow"}


class TopicOperations:
    """A base class of `Admin` with the operations on topics, leaders and ACLs."""

    _client: AdminClient

    async def brokers(self) -> list[BrokerDescription]:
        """Return the live brokers."""
        metadata = await self._client.kafka.cluster.refresh()
        return [
            BrokerDescription(node_id, *broker.address, broker.rack, node_id == metadata.controller)
            for node_id, broker in sorted(metadata.brokers.items())
        ]

    async def topics(self, *, internal: bool = False) -> list[str]:
        """Return the sorted names of all topics. With `internal`, include Kafka's own."""
        names = await self._client.kafka.cluster.topic_names()
        return [name for name in names if internal or name not in _INTERNAL]

    async def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        """Return the partitions, leaders and replicas of the topics, or of all topics if None."""
        if topics is None:
            names = await self.topics(internal=True)
            metadata = await self._client.kafka.cluster.refresh(names)
            # a topic may be deleted in the meantime
            names = [name for name in names if metadata.topics[name].error is None]
        else:
            names = sorted(set(topics))
            try:
                metadata = await self._client.retry(lambda: self._client.metadata(names))
            except UnknownTopicOrPartition as error:
                raise await self._with_similar_name(error, names) from error
        return [_describe(metadata, name) for name in names]

    async def _with_similar_name(
        self, error: UnknownTopicOrPartition, names: Iterable[str]
    ) -> UnknownTopicOrPartition:
        """Return an error that names the existing topic with the most similar name.

        Return `error` itself if no name is similar.
        """
        existing = await self.topics(internal=True)
        for name in sorted(set(names) - set(existing)):
            for similar in difflib.get_close_matches(name, existing, 1):
                return UnknownTopicOrPartition(f"topic {name!r} (did you mean {similar!r}?)")
        return error

    async def log_ranges(self, topics: Iterable[str]) -> list[LogRange]:
        """Return the first offset and the end of each partition that has a leader."""
        names = list(topics)
        return await self._client.retry(lambda: find_ranges(self._client, names))

    async def last_records(self, topics: Iterable[str]) -> list[Record]:
        """Return the record at the last offset of each partition.

        Leave out a partition if a transaction marker or a removed record is at its last offset.
        """
        return await read_last(self._client, await self.log_ranges(topics))

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, and wait until its partitions have leaders.

        A number of -1 means the default of the brokers, from Kafka 2.4 on.
        """

        async def create() -> None:
            request = CreateTopicsRequest(
                name, partitions, replication_factor, configs or {}, timeout_ms=_TIMEOUT_MS
            )
            for row in (await self._client.ask_controller(request))["topics"]:
                check(row["error_code"], f"topic {name!r}", row["error_message"])

        await self._client.retry(create)
        await self._wait_leaders(name, max(partitions, 1))

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and all their records."""
        remaining = sorted(set(names))

        async def delete() -> None:
            request = DeleteTopicsRequest(remaining, timeout_ms=_TIMEOUT_MS)
            for row in (await self._client.ask_controller(request))["topics"]:
                about = f"topic {row['name']!r}"
                check(row["error_code"], about, row.get("error_message"))
                remaining.remove(row["name"])

        await self._client.retry(delete)

    async def add_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions to `total`, and wait until they have leaders.

        Records with the same key may then be in another partition than before.
        """

        async def add() -> None:
            request = CreatePartitionsRequest(topic, total, timeout_ms=_TIMEOUT_MS)
            for row in (await self._client.ask_controller(request))["topics"]:
                check(row["error_code"], f"topic {topic!r}", row["error_message"])

        await self._client.retry(add)
        await self._wait_leaders(topic, total)

    async def topic_configs(self, topic: str) -> list[ConfigEntry]:
        """Return all configs of a topic, each with the place where it is set."""

        async def ask() -> list[ConfigEntry]:
            (result,) = (await self._client.ask_any(DescribeConfigsRequest(topic)))["results"]
            check(result["error_code"], f"topic {topic!r}", result["error_message"])
            return [
                ConfigEntry(
                    row["name"],
                    row["value"],
                    _SOURCES.get(row["config_source"], "unknown"),
                    row["read_only"],
                    row["is_sensitive"],
                )
                for row in sorted(result["configs"], key=lambda row: str(row["name"]))
            ]

        return await self._client.retry(ask)

    async def set_topic_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Set these configs of a topic, and leave the others unchanged. None restores a default."""

        async def ask() -> None:
            request = IncrementalAlterConfigsRequest(topic, configs)
            for row in (await self._client.ask_controller(request))["responses"]:
                check(row["error_code"], f"topic {topic!r}", row["error_message"])

        await self._client.retry(ask)

    async def elect_leaders(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Make the preferred replica of each partition its leader, with an ElectLeaders request.

        Return the partitions whose leader has changed.
        """
        described = await self.describe_topics(topics)
        by_topic = {
            topic.name: [partition.partition for partition in topic.partitions]
            for topic in described
        }

        async def elect() -> list[TopicPartition]:
            request = ElectPreferredLeadersRequest(by_topic, timeout_ms=_TIMEOUT_MS)
            response = await self._client.ask_controller(request)
            check(response["error_code"], "the election of leaders")
            elected = []
            for topic in response["results"]:
                for row in topic["partitions"]:
                    tp = TopicPartition(topic["topic"], row["partition"])
                    if row["error_code"] != ElectionNotNeeded.code:
                        check(row["error_code"], f"the election of a leader of {tp}")
                        elected.append(tp)
            return sorted(elected)

        return await self._client.retry(elect)

    async def acls(self) -> list[AclEntry]:
        """Return all ACLs of the cluster.

        Raise `SecurityDisabled` if the cluster has no authorizer.
        """

        async def ask() -> list[AclEntry]:
            response = await self._client.ask_any(DescribeAclsRequest())
            check(response["error_code"], "the ACLs of the cluster", response["error_message"])
            return [
                AclEntry(
                    acl["principal"],
                    acl["host"],
                    _OPERATIONS.get(acl["operation"], "unknown"),
                    _PERMISSIONS.get(acl["permission_type"], "unknown"),
                    _RESOURCE_TYPES.get(resource["resource_type"], "unknown"),
                    resource["resource_name"],
                    _PATTERNS.get(resource["pattern_type"], "unknown"),
                )
                for resource in response["resources"]
                for acl in resource["acls"]
            ]

        return await self._client.retry(ask)

    async def _wait_leaders(self, topic: str, count: int) -> None:
        """Wait until a topic has this number of partitions, and all have leaders."""

        async def look() -> None:
            described = _describe(await self._client.metadata([topic]), topic)
            if len(described.partitions) < count:
                raise UnknownTopicOrPartition(f"partition {count - 1} of {topic}")
            for partition in described.partitions:
                if partition.leader is None:
                    raise LeaderNotAvailable(f"partition {partition.partition} of {topic}")

        await self._client.retry(look)


def _describe(metadata: Metadata, name: str) -> TopicDescription:
    topic = metadata.topics[name]
    partitions = []
    for number in sorted(topic.partitions):
        row = topic.partitions[number]
        leader = None if row.leader == NO_LEADER else row.leader
        partitions.append(PartitionDescription(number, leader, row.replicas, row.isr))
    topic_id = None if topic.topic_id is None else str(topic.topic_id)
    return TopicDescription(name, topic_id, name in _INTERNAL, tuple(partitions))
