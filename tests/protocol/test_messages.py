"""Message schemas: the same bytes as aiokafka."""

import struct
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol import commit, fetch, metadata, offset
from aiokafka.protocol.api import Request

from asyncconsumer.protocol.messages import (
    EARLIEST,
    FETCH,
    LATEST,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListedOffset,
    ListOffsetsRequest,
    MetadataRequest,
)
from asyncconsumer.protocol.offset_commit import Commit, OffsetCommitRequest, OffsetFetchRequest
from asyncconsumer.protocol.rows import PackedRows
from asyncconsumer.protocol.schema import Rest, TableRequest, Uuid
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import produce

pytestmark = pytest.mark.fast


ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
BY_NAME = FetchTopic("t")


def bytes_of(request: Request, version: int) -> bytes:
    return bytes(request.prepare({request.API_KEY: (version, version)}).encode())


def simple_fetch(topic: FetchTopic = BY_NAME, **changes: Any) -> FetchRequest:
    asked = [FetchPartition(0, 5, 100), FetchPartition(3, 2**40, 2**20, 7)]
    options = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 2**25, "isolation_level": 1}
    return FetchRequest({topic: asked}, **options | changes)


@pytest.mark.parametrize("version", range(4, 6))
def test_metadata_is_encoded_as_by_aiokafka(version: int) -> None:
    for topics in (["a", "bé"], [], None):
        theirs = metadata.MetadataRequest(topics, allow_auto_topic_creation=False)
        assert bytes_of(MetadataRequest(topics), version) == bytes_of(theirs, version)


@pytest.mark.parametrize("version", range(1, 4))
def test_list_offsets_is_encoded_as_by_aiokafka(version: int) -> None:
    level = int(version > 1)
    theirs = offset.OffsetRequest(-1, level, [("t", [(0, LATEST), (1, EARLIEST), (2, 2**40)])])
    rows = [ListedOffset(0, LATEST), ListedOffset(1, EARLIEST), ListedOffset(2, 2**40)]
    assert bytes_of(ListOffsetsRequest({"t": rows}, level), version) == bytes_of(theirs, version)


@pytest.mark.parametrize("version", range(4, 12))
def test_fetch_is_encoded_as_by_aiokafka(version: int) -> None:
    rows: dict[int, list[tuple[int, ...]]] = {
        4: [(0, 5, 100), (3, 2**40, 2**20)],
        5: [(0, 5, -1, 100), (3, 2**40, -1, 2**20)],
        9: [(0, -1, 5, -1, 100), (3, 7, 2**40, -1, 2**20)],
    }
    results = rows[max(first for first in rows if first <= version)]
    head: list[Any] = [-1, 500, 1, 2**25, 1, *([9, 2] if version >= 7 else []), [("t", results)]]
    tail = [[("gone", [4])]] if version >= 7 else []
    theirs = getattr(fetch, f"FetchRequest_v{version}")(
        *head, *tail, *(["rack"] if version == 11 else [])
    )
    session: dict[str, Any] = (
        {"session": (9, 2), "forgotten": {FetchTopic("gone"): [4]}} if version >= 7 else {}
    )
    assert bytes_of(simple_fetch(rack="rack", **session), version) == theirs.encode()


@pytest.mark.parametrize("version", range(2, 4))
def test_commits_are_encoded_as_by_aiokafka(version: int) -> None:
    theirs: Request = commit.OffsetCommitRequest("g", 3, "me", -1, [("t", [(1, 50, "note")])])
    tested = OffsetCommitRequest(
        "g", {"t": [Commit(1, 50, 6, "note")]}, generation=3, member_id="me"
    )
    assert bytes_of(tested, version) == bytes_of(theirs, version)
    for topics in ({"t": [1, 2]}, None):
        theirs = commit.OffsetFetchRequest("g", None if topics is None else list(topics.items()))
        assert bytes_of(OffsetFetchRequest("g", topics), version) == bytes_of(theirs, version)


def test_a_flexible_fetch_has_topic_ids_epochs_and_no_replica() -> None:
    compact = bytes.fromhex("00000000ffffffff02") + ID.bytes + b"\x02"
    row = struct.pack(">iiqiqi", 3, 7, 2**40, 2, -1, 2**20) + b"\x00"
    asked = FetchPartition(3, 2**40, 2**20, 7, 2)
    request = FetchRequest({FetchTopic("t", ID): [asked]}, max_wait_ms=1, min_bytes=2, max_bytes=3)
    expected = struct.pack(">iiib", 1, 2, 3, 0) + compact + row + b"\x00" + b"\x01\x01\x00"
    assert bytes_of(request, 17) == expected
    assert bytes_of(request, 14) == struct.pack(">i", -1) + expected
    by_name = FetchRequest({BY_NAME: [asked]}, max_wait_ms=1, min_bytes=2, max_bytes=3)
    assert bytes_of(by_name, 12) == struct.pack(">i", -1) + expected.replace(ID.bytes, b"\x02t")


@pytest.mark.parametrize("version", FETCH.versions)
def test_packed_rows_are_encoded_as_by_aiokafka(version: int) -> None:
    made = simple_fetch(FetchTopic("t", ID)).prepare({1: (version, version)})
    packed = made.SCHEMA.fields[made.SCHEMA.names.index("topics")].array_of
    rows = packed.fields[packed.names.index("partitions")]
    assert isinstance(rows, PackedRows)
    asked = made.topics[0]["partitions"]
    plain = [
        [{} if name == "tags" else getattr(row, name) for name in rows.array_of.names]
        for row in asked
    ]
    assert rows.encode(asked) == rows._plain.encode(plain)
    assert rows.decode(BytesIO(rows.encode(asked))) == [tuple(row) for row in plain]


@pytest.mark.parametrize("version", LIST_OFFSETS.versions)
@pytest.mark.parametrize("tags", [{}, {1: b"\x01a"}, {5: b"\x02ab"}])
def test_rows_with_and_without_tagged_fields_are_decoded(
    version: int, tags: dict[int, bytes]
) -> None:
    answer = ListOffsetsRequest({}).prepare({2: (version, version)}).RESPONSE_TYPE
    topics = answer.SCHEMA.fields[answer.SCHEMA.names.index("topics")].array_of
    rows = topics.fields[topics.names.index("partitions")]
    assert isinstance(rows, PackedRows)
    reported: list[tuple[Any, ...]] = [
        tuple((tags if n == 2 else {}) if name == "tags" else n for name in rows.array_of.names)
        for n in range(5)
    ]
    encoded = rows._plain.encode(reported)
    data = BytesIO(encoded + b"more")
    read = rows.decode(data)
    assert read == reported
    assert data.read() == b"more"
    for end in range(len(encoded)):  # a truncation anywhere is an error
        with pytest.raises((ValueError, struct.error)):
            rows.decode(BytesIO(encoded[:end]))


def test_a_fetch_uses_topic_ids_only_when_every_topic_has_one() -> None:
    by_id, by_name = FetchTopic("t", ID), FetchTopic("u")
    newest = {1: (4, 99)}
    assert simple_fetch(by_id).prepare(newest).API_VERSION == 17
    assert simple_fetch(by_name).prepare(newest).API_VERSION == 12
    assert simple_fetch(by_id, forgotten={by_name: [0]}).prepare(newest).API_VERSION == 12


@pytest.mark.parametrize(
    ("request_", "least"),
    [
        (simple_fetch(), 4),
        (simple_fetch(session=(0, 0)), 7),
        (simple_fetch(forgotten={FetchTopic("t"): [0]}), 7),
        (MetadataRequest(["t"]), 4),
        (ListOffsetsRequest({"t": [ListedOffset(0, LATEST)]}), 1),
        (ListOffsetsRequest({"t": [ListedOffset(0, LATEST)]}, READ_COMMITTED), 2),
        (ListOffsetsRequest({"t": [ListedOffset(0, MAX_TIMESTAMP)]}), 7),
        (OffsetFetchRequest("g", {"t": [0]}), 1),
        (OffsetFetchRequest("g", None), 2),
        (OffsetFetchRequest("g", None, require_stable=True), 7),
        (OffsetCommitRequest("g", {}, group_instance_id="i"), 7),
    ],
)
def test_each_request_has_a_least_version(request_: TableRequest, least: int) -> None:
    key = request_.API_KEY
    version = request_.prepare({key: (0, least)}).API_VERSION
    assert version == least
    with pytest.raises(IncompatibleBrokerVersion, match=f"version {least} to .* 0 to {least - 1}"):
        request_.prepare({key: (0, least - 1)})
    with pytest.raises(IncompatibleBrokerVersion, match="supports no version"):
        request_.prepare({})


def test_ids_are_sixteen_bytes() -> None:
    assert Uuid.decode(BytesIO(Uuid.encode(ID))) == ID
    assert Uuid.encode(None) == bytes(16)
    with pytest.raises(ValueError, match="underrun"):
        Uuid.decode(BytesIO(b"short"))
    assert Rest.decode(BytesIO(Rest.encode(b"any"))) == b"any"


@pytest.fixture(params=["kafka", "kafka_zk"])
def server(request: pytest.FixtureRequest) -> KafkaHandle:
    handle = request.getfixturevalue(request.param)
    assert isinstance(handle, KafkaHandle)
    return handle


@pytest.fixture
async def topic(server: KafkaHandle) -> str:
    """Create a topic with three records."""
    name = await server.topic()
    await produce(name, [b"a", b"b", b"c"], bootstrap_servers=server.bootstrap_servers)
    return name
