"""Requests that aiokafka lacks, or has only in versions without needed fields.

These are Metadata with topic ids and leader epochs, Fetch with sessions (KIP-227), topic ids and
epochs, and ListOffsets and OffsetForLeaderEpoch with leader epochs. ListConfigResources lists
topics since Kafka 4.1. FindCoordinator is aiokafka's own.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from asyncconsumer.aiokafka_parts import Boolean, Int8, Int16, Int32, Int64, RequestStruct
from asyncconsumer.protocol.schema import RAW, Api, ArrayOf, Field, TableRequest, Text, Uuid

LATEST: Final = -1
"""The timestamp in ListOffsets for the end of the partition, the offset of the next record."""
EARLIEST: Final = -2
"""The timestamp in ListOffsets for the first record of the partition."""
MAX_TIMESTAMP: Final = -3
"""The timestamp in ListOffsets for the record with the newest timestamp."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

NO_SESSION: Final = (0, -1)
"""The session id and epoch of a fetch without a fetch session."""
NEW_SESSION: Final = (0, 0)
"""The session id and epoch of a fetch that asks for a new fetch session."""

_CONSUMER: Final = -1  # the replica id of consumers

METADATA: Final = Api(
    name="Metadata",
    key=3,
    versions=range(4, 14),  # older versions create missing topics
    flexible_since=9,
    request=(
        Field("topics", ArrayOf(Field("topic_id", Uuid, 10), Field("name", Text))),
        Field("allow_auto_topic_creation", Boolean),
        Field("include_cluster_authorized_operations", Boolean, 8, 10),
        Field("include_topic_authorized_operations", Boolean, 8),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field(
            "brokers",
            ArrayOf(
                Field("node_id", Int32),
                Field("host", Text),
                Field("port", Int32),
                Field("rack", Text),
            ),
        ),
        Field("cluster_id", Text),
        Field("controller_id", Int32),
        Field(
            "topics",
            ArrayOf(
                Field("error_code", Int16),
                Field("name", Text),
                Field("topic_id", Uuid, 10),
                Field("is_internal", Boolean),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("error_code", Int16),
                        Field("partition", Int32),
                        Field("leader", Int32),
                        Field("leader_epoch", Int32, 7),
                        Field("replicas", ArrayOf(Int32)),
                        Field("isr", ArrayOf(Int32)),
                        Field("offline_replicas", ArrayOf(Int32), 5),
                    ),
                ),
                Field("authorized_operations", Int32, 8),
            ),
        ),
        Field("cluster_authorized_operations", Int32, 8, 10),
        Field("error_code", Int16, 13),
    ),
)


class MetadataRequest(TableRequest, api=METADATA):
    """A Metadata request for the brokers, and for topics by name or id. None requests all topics.

    With `create`, a broker that is configured to may create topics that do not exist. With
    `operations`, the response has the permitted operations on each topic, as bits.
    """

    def __init__(
        self,
        topics: Iterable[str] | None = (),
        *,
        topic_ids: Collection[UUID] = (),
        create: bool = False,
        operations: bool = False,
    ) -> None:
        rows: list[Mapping[str, object]] | None = None
        if topics is not None:
            rows = [{"topic_id": None, "name": name} for name in topics]
            rows += [{"topic_id": topic_id, "name": None} for topic_id in topic_ids]
        super().__init__(
            {
                "topics": rows,
                "allow_auto_topic_creation": create,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": operations,
            },
            min_version=12 if topic_ids else 0,
        )


LIST_CONFIG_RESOURCES: Final = Api(
    name="ListConfigResources",
    key=74,
    versions=range(1, 2),  # version 0, before Kafka 4.1, lists no topics
    flexible_since=0,
    request=(Field("resource_types", ArrayOf(Int8)),),
    response=(
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field(
            "config_resources",
            ArrayOf(Field("resource_name", Text), Field("resource_type", Int8)),
        ),
    ),
)
_TOPICS: Final = 2  # the resource type of topics


class ListTopicsRequest(TableRequest, api=LIST_CONFIG_RESOURCES):
    """A ListConfigResources request for all topic names.

    It transfers no partitions. The client needs the permission DescribeConfigs on the cluster.
    """

    def __init__(self) -> None:
        super().__init__({"resource_types": [_TOPICS]})

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        """Return the request in its newest version that the broker supports.

        If the broker lacks the API, return a Metadata request for all topics instead.
        """
        _, newest = versions.get(self.API_KEY, (-1, -1))
        if newest < self.API.versions[0]:
            return MetadataRequest(None).prepare(versions)
        return super().prepare(versions)


LIST_OFFSETS: Final = Api(
    name="ListOffsets",
    key=2,
    versions=range(1, 10),
    flexible_since=6,
    request=(
        Field("replica_id", Int32),
        Field("isolation_level", Int8, 2),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition", Int32),
                        Field("current_leader_epoch", Int32, 4),
                        Field("timestamp", Int64),
                    ),
                ),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", Int32, 2),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition", Int32),
                        Field("error_code", Int16),
                        Field("timestamp", Int64),
                        Field("offset", Int64),
                        Field("leader_epoch", Int32, 4),
                    ),
                ),
            ),
        ),
    ),
)


class ListedOffset(NamedTuple):
    """A partition in a ListOffsets request. The timestamp is in ms, or EARLIEST or LATEST."""

    partition: int
    timestamp: int
    current_leader_epoch: int = -1  # the leader epoch that this client knows, or -1


class ListOffsetsRequest(TableRequest, api=LIST_OFFSETS):
    """A ListOffsets request for the first offset at or after a time, or for an end of the log."""

    def __init__(
        self,
        topics: Mapping[str, Sequence[ListedOffset]],
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        min_version = 2 if isolation_level else 1
        if any(row.timestamp == MAX_TIMESTAMP for rows in topics.values() for row in rows):
            min_version = 7
        values = {
            "replica_id": _CONSUMER,
            "isolation_level": isolation_level,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        super().__init__(values, min_version=min_version)


OFFSET_FOR_LEADER_EPOCH: Final = Api(
    name="OffsetForLeaderEpoch",
    key=23,
    versions=range(2, 5),
    flexible_since=4,
    request=(
        Field("replica_id", Int32, 3),
        Field(
            "topics",
            ArrayOf(
                Field("topic", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition", Int32),
                        Field("current_leader_epoch", Int32),
                        Field("leader_epoch", Int32),
                    ),
                ),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", Int32),
        Field(
            "topics",
            ArrayOf(
                Field("topic", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("error_code", Int16),
                        Field("partition", Int32),
                        Field("leader_epoch", Int32),
                        Field("end_offset", Int64),
                    ),
                ),
            ),
        ),
    ),
)


class EpochRow(NamedTuple):
    """A partition in an OffsetForLeaderEpoch request."""

    partition: int
    leader_epoch: int  # leader epoch of the last record read
    current_leader_epoch: int = -1


class OffsetForLeaderEpochRequest(TableRequest, api=OFFSET_FOR_LEADER_EPOCH):
    """An OffsetForLeaderEpoch request for the end offset of a leader epoch.

    A reader whose position is after this offset has read records that were truncated since.
    """

    def __init__(self, topics: Mapping[str, Sequence[EpochRow]]) -> None:
        rows = [{"topic": name, "partitions": epochs} for name, epochs in topics.items()]
        super().__init__({"replica_id": _CONSUMER, "topics": rows})


FETCH: Final = Api(
    name="Fetch",
    key=1,
    versions=range(4, 18),
    flexible_since=12,
    request=(
        Field("replica_id", Int32, 0, 14),
        Field("max_wait_ms", Int32),
        Field("min_bytes", Int32),
        Field("max_bytes", Int32),
        Field("isolation_level", Int8),
        Field("session_id", Int32, 7),
        Field("session_epoch", Int32, 7),
        Field(
            "topics",
            ArrayOf(
                Field("topic", Text, 0, 12),
                Field("topic_id", Uuid, 13),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition", Int32),
                        Field("current_leader_epoch", Int32, 9),
                        Field("fetch_offset", Int64),
                        Field("last_fetched_epoch", Int32, 12),
                        Field("log_start_offset", Int64, 5),
                        Field("partition_max_bytes", Int32),
                    ),
                ),
            ),
        ),
        Field(
            "forgotten",
            ArrayOf(
                Field("topic", Text, 0, 12),
                Field("topic_id", Uuid, 13),
                Field("partitions", ArrayOf(Int32)),
            ),
            7,
        ),
        Field("rack_id", Text, 11),
    ),
    response=RAW,
)


class FetchTopic(NamedTuple):
    """A topic in a Fetch request: its name, and its id or None."""

    name: str
    topic_id: UUID | None = None


class FetchPartition(NamedTuple):
    """A partition in a Fetch request."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1  # the leader epoch that this client knows, or -1
    last_fetched_epoch: int = -1  # leader epoch of the last record read
    log_start_offset: int = -1  # used by replicas only


class FetchRequest(TableRequest, api=FETCH):
    """A Fetch request for records from several partitions of one broker.

    `asyncconsumer.records` decodes the response. ``session`` is `NO_SESSION`, `NEW_SESSION`, or a
    pair of session id and epoch. A session id with epoch 0 replaces the session by a new one.
    ``forgotten`` has the partitions to remove from the session. If every topic has an id, the
    request contains ids. Otherwise it contains names, and its version is below 13.
    """

    def __init__(
        self,
        topics: Mapping[FetchTopic, Sequence[FetchPartition]],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int = READ_UNCOMMITTED,
        session: tuple[int, int] = NO_SESSION,
        forgotten: Mapping[FetchTopic, Sequence[int]] | None = None,
        rack: str = "",
    ) -> None:
        forgotten = forgotten or {}
        by_id = all(topic.topic_id for topic in (*topics, *forgotten))
        values: dict[str, Any] = {
            "replica_id": _CONSUMER,
            "max_wait_ms": max_wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": isolation_level,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": _named(topics),
            "forgotten": _named(forgotten),
            "rack_id": rack,
        }
        needs_session = session != NO_SESSION or bool(forgotten)
        super().__init__(
            values, min_version=7 if needs_session else 4, max_version=17 if by_id else 12
        )


def _named(topics: Mapping[FetchTopic, Sequence[Any]]) -> list[dict[str, Any]]:
    return [
        {"topic": topic.name, "topic_id": topic.topic_id, "partitions": rows}
        for topic, rows in topics.items()
    ]
