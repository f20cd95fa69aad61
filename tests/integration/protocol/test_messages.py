"""Message schemas: requests that real brokers accept."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.protocol.coordination import FindCoordinatorRequest

from asyncconsumer.protocol.messages import (
    EARLIEST,
    LATEST,
    EpochRow,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListedOffset,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from asyncconsumer.protocol.offset_commit import Commit, OffsetCommitRequest, OffsetFetchRequest
from asyncconsumer.protocol.schema import TableRequest, Uuid
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import produce, until


async def ask(
    connection: AIOKafkaConnection, request: TableRequest, versions: range | None = None
) -> list[dict[str, Any]]:
    """Return the responses in every version that both sides support."""
    low, high = connection._versions[request.API_KEY]
    answers = []
    for version in versions or request.API.versions:
        if low <= version <= high:
            request._min_version = request._max_version = version
            answers.append((await connection.send(request)).to_object())
    assert answers
    return answers


def only(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the only partition of the only topic."""
    [topic] = answer["topics"]
    [partition] = topic["partitions"]
    assert isinstance(partition, dict)
    assert partition["error_code"] == 0
    return partition


@pytest.fixture(params=["kafka", "kafka_zk"])
def server(request: pytest.FixtureRequest) -> KafkaHandle:
    handle = request.getfixturevalue(request.param)
    assert isinstance(handle, KafkaHandle)
    return handle


@pytest.fixture
async def topic(server: KafkaHandle) -> str:
    """Return the name of a topic with three records."""
    name = await server.topic()
    await produce(name, [b"a", b"b", b"c"], bootstrap_servers=server.bootstrap_servers)
    return name


@pytest.fixture
async def connection(server: KafkaHandle) -> AsyncIterator[AIOKafkaConnection]:
    host, port = server.bootstrap_servers.split(":")
    opened = await create_conn(host, int(port))
    yield opened
    await opened.close()


async def test_brokers_answer_each_version_of_metadata(
    connection: AIOKafkaConnection, topic: str
) -> None:
    described = await ask(connection, MetadataRequest([topic]))
    assert all(only(answer)["leader"] >= 0 for answer in described)
    assert {only(answer).get("leader_epoch", 0) for answer in described} == {0}
    ids = {answer["topics"][0].get("topic_id", Uuid.NONE) for answer in described}
    assert len(ids - {Uuid.NONE}) == 1


async def test_brokers_answer_each_version_of_list_offsets(
    connection: AIOKafkaConnection, topic: str
) -> None:
    for timestamp, offset_ in ((LATEST, 3), (EARLIEST, 0), (1, 0)):
        rows = [ListedOffset(0, timestamp, 0)]
        answers = await ask(connection, ListOffsetsRequest({topic: rows}))
        assert {only(answer)["offset"] for answer in answers} == {offset_}
    ended = await ask(connection, OffsetForLeaderEpochRequest({topic: [EpochRow(0, 0, 0)]}))
    assert {(only(row)["leader_epoch"], only(row)["end_offset"]) for row in ended} == {(0, 3)}


async def test_brokers_answer_each_version_of_fetch(
    connection: AIOKafkaConnection, topic: str
) -> None:
    [*_, described] = await ask(connection, MetadataRequest([topic]))
    by_id = FetchTopic(topic, described["topics"][0]["topic_id"])
    for asked, versions in ((FetchTopic(topic), range(4, 13)), (by_id, range(13, 18))):
        request = FetchRequest(
            {asked: [FetchPartition(0, 1, 2**20, 0)]}, max_wait_ms=0, min_bytes=0, max_bytes=2**20
        )
        for answer in await ask(connection, request, versions):
            assert b"c" in answer["body"]


async def test_brokers_answer_each_version_of_offset_commit_and_fetch(
    server: KafkaHandle, connection: AIOKafkaConnection, topic: str
) -> None:
    group = server.group()

    async def is_coordinated() -> bool:
        """Return whether the broker has created and loaded its offsets topic."""
        result = await connection.send(FindCoordinatorRequest(group, 0))
        tried = await connection.send(OffsetCommitRequest(group, {topic: [Commit(0, 1)]}))
        codes = [row["error_code"] for row in tried.to_object()["topics"][0]["partitions"]]
        return bool(result.error_code == 0 and codes == [0])

    await until(is_coordinated)
    committed = await ask(
        connection, OffsetCommitRequest(group, {topic: [Commit(0, 2, 0, "note")]})
    )
    assert {only(answer)["error_code"] for answer in committed} == {0}
    fetched = await ask(connection, OffsetFetchRequest(group, {topic: [0]}))
    assert {(only(row)["offset"], only(row)["metadata"]) for row in fetched} == {(2, "note")}
    assert {only(row).get("leader_epoch", 0) for row in fetched} == {0}
    [*_, everything] = await ask(connection, OffsetFetchRequest(group, None), range(2, 8))
    assert only(everything)["offset"] == 2
