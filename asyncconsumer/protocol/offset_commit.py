"""OffsetCommit and OffsetFetch with leader epochs, static members and stable offsets.

aiokafka has these requests only up to version 3, which has no field for any of these.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from asyncconsumer.aiokafka_parts import Boolean, Int16, Int32, Int64, Response
from asyncconsumer.errors import MalformedResponse
from asyncconsumer.protocol.schema import Api, ArrayOf, Field, TableRequest, Text

OFFSET_COMMIT: Final = Api(
    name="OffsetCommit",
    key=8,
    versions=range(2, 10),
    flexible_since=8,
    request=(
        Field("group_id", Text),
        Field("generation", Int32),
        Field("member_id", Text),
        Field("group_instance_id", Text, 7),
        Field("retention_time_ms", Int64, 2, 4),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition", Int32),
                        Field("offset", Int64),
                        Field("leader_epoch", Int32, 6),
                        Field("metadata", Text),
                    ),
                ),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", Int32, 3),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field("partitions", ArrayOf(Field("partition", Int32), Field("error_code", Int16))),
            ),
        ),
    ),
)

OFFSET_FETCH: Final = Api(
    name="OffsetFetch",
    key=9,
    versions=range(1, 8),  # from 8 on a request has several groups
    flexible_since=6,
    request=(
        Field("group_id", Text),
        Field("topics", ArrayOf(Field("name", Text), Field("partitions", ArrayOf(Int32)))),
        Field("require_stable", Boolean, 7),
    ),
    response=(
        Field("throttle_time_ms", Int32, 3),
        Field(
            "topics",
            ArrayOf(
                Field("name", Text),
                Field(
                    "partitions",
                    ArrayOf(
                        Field("partition", Int32),
                        Field("offset", Int64),
                        Field("leader_epoch", Int32, 5),
                        Field("metadata", Text),
                        Field("error_code", Int16),
                    ),
                ),
            ),
        ),
        Field("error_code", Int16, 2),
    ),
)


class Commit(NamedTuple):
    """One partition in an OffsetCommit request, with the offset of the next record to read."""

    partition: int
    offset: int
    leader_epoch: int = -1  # leader epoch of the last record read
    metadata: str = ""


class OffsetCommitRequest(TableRequest, api=OFFSET_COMMIT):
    """An OffsetCommit request for offsets of a group.

    Without a member id and a generation, brokers accept it only for a group without members.
    """

    def __init__(
        self,
        group_id: str,
        topics: Mapping[str, Sequence[Commit]],
        *,
        generation: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        values = {
            "group_id": group_id,
            "generation": generation,
            "member_id": member_id,
            "group_instance_id": group_instance_id,
            "retention_time_ms": -1,  # the setting of the broker applies
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        super().__init__(values, min_version=7 if group_instance_id is not None else 2)


class OffsetFetchRequest(TableRequest, api=OFFSET_FETCH):
    """An OffsetFetch request for the committed offsets of `topics`, or of all topics if None.

    With ``require_stable`` the coordinator returns an error while a transaction with offsets is
    open.
    """

    def __init__(
        self,
        group_id: str,
        topics: Mapping[str, Sequence[int]] | None,
        *,
        require_stable: bool = False,
    ) -> None:
        rows = None
        if topics is not None:
            rows = [{"name": name, "partitions": numbers} for name, numbers in topics.items()]
        values = {"group_id": group_id, "topics": rows, "require_stable": require_stable}
        super().__init__(values, min_version=7 if require_stable else 2 if rows is None else 1)


_FETCHED_WITH_EPOCH: Final = 5  # first version of OffsetFetch with leader epochs


def committed_rows(response: Response) -> Iterator[tuple[str, int, int]]:
    """Yield topic, partition and error code for each partition in an OffsetCommit response."""
    for topic, rows in _topics("OffsetCommit", response):
        for partition, code, *_ in rows:
            yield topic, partition, code


def fetched_rows(response: Response) -> Iterator[tuple[str, int, int, int, str, int]]:
    """Yield the fields of each partition in an OffsetFetch response.

    They are topic, partition, offset, leader epoch, metadata and error code. A response may have
    100,000 partitions, so no partition becomes a dict.
    """
    with_epoch = response.API_VERSION >= _FETCHED_WITH_EPOCH
    for topic, rows in _topics("OffsetFetch", response):
        if with_epoch:
            for partition, offset, epoch, metadata, code, *_ in rows:
                yield topic, partition, offset, epoch, metadata or "", code
        else:
            for partition, offset, metadata, code in rows:
                yield topic, partition, offset, -1, metadata or "", code


def _topics(api: str, response: Response) -> Iterator[tuple[str, Sequence[tuple[Any, ...]]]]:
    for topic, rows, *_ in response.topics or ():
        if rows is None:
            raise MalformedResponse(api, response.API_VERSION, 0, "an array that is null")
        yield topic, rows
