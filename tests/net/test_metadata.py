"""Metadata as values: updates, decoding, and invalid responses."""

import struct
from collections.abc import Collection, Mapping
from random import Random
from typing import Any, TypeAlias, cast
from uuid import UUID

import pytest

from asyncconsumer.errors import (
    AccessDenied,
    LeaderNotAvailable,
    MalformedResponse,
    TopicAccessDenied,
    UnknownTopicOrPartition,
)
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.metadata import (
    NO_LEADER,
    Broker,
    Leader,
    Metadata,
    Partition,
    Topic,
)
from asyncconsumer.net.metadata_reader import MetadataReader
from asyncconsumer.protocol.messages import METADATA, MetadataRequest
from asyncconsumer.types import Address, TopicPartition
from tests.support.fake_connections import metadata_answer

pytestmark = pytest.mark.fast

ONE, TWO = Broker(1, Address("a", 1)), Broker(2, Address("b", 2), "rack")
FIRST, SECOND = UUID(int=1), UUID(int=2)
T0 = TopicPartition("t", 0)


def seen(topic_id: UUID | None = FIRST, **partitions: tuple[int, int]) -> Metadata:
    """Return metadata of topic t with leader and epoch of each partition, `p0=(leader, epoch)`."""
    rows = {int(name[1:]): Partition(*place) for name, place in partitions.items()}
    return Metadata({1: ONE, 2: TWO}, 1, {"t": Topic("t", topic_id, rows)})


def test_a_leader_has_a_broker_and_an_epoch() -> None:
    assert seen(p0=(2, 7)).leader(T0) == Leader(TWO, 7)


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        (Metadata(), UnknownTopicOrPartition),
        (seen(), UnknownTopicOrPartition),
        (seen(p0=(NO_LEADER, 3)), LeaderNotAvailable),
        (seen(p0=(9, 3)), LeaderNotAvailable),
        (Metadata(topics={"t": Topic("t", error=TopicAccessDenied("topic 't'"))}), AccessDenied),
    ],
)
def test_a_missing_leader_has_a_reason(metadata: Metadata, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="t"):
        metadata.leader(T0)


def read(
    body: bytes, version: int, requested: Collection[str] = ("t",), known: Metadata | None = None
) -> MetadataReader:
    """Return a reader that has decoded a response."""
    reader = MetadataReader(body, version, requested, (known or Metadata()).topics)
    for _ in reader.steps():
        pass
    return reader


def observed(
    topic_id: UUID | None = FIRST, known: Metadata | None = None, **partitions: tuple[int, int]
) -> Metadata:
    """Return metadata of topic t, merged into earlier metadata."""
    leaders = {int(name[1:]): place for name, place in partitions.items()}
    body = metadata_answer({1: ("a", 1), 2: ("b", 2)}, {"t": (topic_id, 0, leaders)})
    return read(body[1:], 12, known=known).metadata


def leaders(metadata: Metadata) -> dict[int, tuple[int, int]]:
    partitions = metadata.topics["t"].partitions
    return {number: (partition.leader, partition.epoch) for number, partition in partitions.items()}


@pytest.mark.parametrize(
    ("before", "answer", "after"),
    [
        ((1, 5), (2, 6), (2, 6)),
        ((1, 5), (2, 5), (2, 5)),  # the same epoch again, perhaps without the leader
        ((1, 5), (2, 4), (1, 5)),  # a stale broker
        ((1, 5), (2, -1), (1, 5)),
        ((1, -1), (2, -1), (2, -1)),  # brokers that know no epochs
    ],
)
def test_an_older_epoch_does_not_replace_a_newer_one(
    before: tuple[int, int], answer: tuple[int, int], after: tuple[int, int]
) -> None:
    for known in (seen(p0=before), observed(p0=before)):
        understood = observed(known=known, p0=answer)
        assert leaders(understood) == {0: after}
        # also if the next broker is stale as well
        assert leaders(observed(known=understood, p0=(1, -1)))[0][1] == after[1]


def test_a_recreated_topic_replaces_newer_epochs() -> None:
    assert leaders(observed(SECOND, known=observed(p0=(1, 9)), p0=(2, 0))) == {0: (2, 0)}


def test_the_newest_response_adds_and_removes_partitions() -> None:
    before = observed(p0=(1, 5), p1=(1, 9))
    assert leaders(observed(known=before, p0=(1, 6), p2=(2, 0))) == {0: (1, 6), 2: (2, 0)}


def test_dropped_topics_are_not_kept() -> None:
    known = Metadata(topics={name: Topic(name) for name in ("t", "u", "v")})
    newer = Metadata(topics={"v": Topic("v"), "w": Topic("w")})
    assert set(known.updated(newer, {"t", "v"}).topics) == {"u", "v", "w"}


def test_other_topics_and_the_newest_brokers_are_kept() -> None:
    moved = Metadata({1: Broker(1, Address("c", 3))}, 1, {"u": Topic("u")})
    both = seen(p0=(1, 5)).updated(moved)
    assert set(both.topics) == {"t", "u"}
    assert both.leader(T0).broker.address == Address("c", 3)


Nodes: TypeAlias = tuple[int, ...]
ROWS: dict[
    str, tuple[int, dict[int, tuple[int, int, Nodes, Nodes]]]
] = {  # of each topic error code, and of each partition leader, epoch, replicas, isr
    "t": (0, {0: (1, 7, (1, 2, 3), (1, 2)), 1: (-1, 300, (2,), ()), 2: (2, 0, (2, 1), (2, 1))}),
    "other": (0, {0: (1, 1, (1,), (1,))}),
    "empty": (0, {}),
    "denied": (29, {}),
    "wide": (0, {0: (5, 6, tuple(range(200)), tuple(range(150)))}),
}


def body_of(version: int, rows: Mapping[str, Any] = ROWS, **changes: Any) -> bytes:
    """Return a response in any version, encoded from its table."""
    response = MetadataRequest([]).prepare({3: (version, version)}).RESPONSE_TYPE
    schema = response.SCHEMA

    def row(fields: Any, values: dict[str, Any]) -> tuple[Any, ...]:
        return tuple({} if name == "tags" else values[name] for name in fields.names)

    def inner(fields: Any, name: str) -> Any:
        return fields.fields[fields.names.index(name)].array_of

    topics = inner(schema, "topics")
    values: dict[str, Any] = {
        "throttle_time_ms": 5,
        "brokers": [
            row(
                inner(schema, "brokers"),
                {"node_id": node, "host": "a", "port": node, "rack": None} | changes,
            )
            for node in (1, 2)
        ],
        "cluster_id": None,
        "controller_id": 2,
        "topics": [
            row(
                topics,
                {
                    "error_code": code,
                    "name": name,
                    "topic_id": FIRST,
                    "is_internal": False,
                    "partitions": [
                        row(
                            inner(topics, "partitions"),
                            {
                                "error_code": 9,
                                "partition": number,
                                "leader": leader,
                                "leader_epoch": epoch,
                                "replicas": replicas,
                                "isr": isr,
                                "offline_replicas": [7],
                            },
                        )
                        for number, (leader, epoch, replicas, isr) in partitions.items()
                    ],
                    "authorized_operations": 0,
                },
            )
            for name, (code, partitions) in rows.items()
        ],
        "cluster_authorized_operations": 0,
        "error_code": 3,
    }
    return bytes(response(*row(schema, values)).encode())


VERSIONS = list(METADATA.versions)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_decoded(version: int) -> None:
    reader = read(body_of(version), version, ROWS)
    metadata = reader.metadata
    assert metadata.brokers == {1: Broker(1, Address("a", 1)), 2: Broker(2, Address("a", 2))}
    assert metadata.controller == 2
    assert reader.error_code == (3 if version >= 13 else 0)
    for name, (code, partitions) in ROWS.items():
        topic = metadata.topics[name]
        assert topic.topic_id == (FIRST if version >= 10 else None)
        assert (topic.error.code if topic.error else 0) == code
        assert topic.partitions == {
            number: Partition(leader, epoch if version >= 7 else -1, replicas, isr)
            for number, (leader, epoch, replicas, isr) in partitions.items()
        }
        assert len(topic.partitions) == len(partitions)
        assert 99 not in topic.partitions
        assert topic.partitions.get(99) is None
    assert list(reader.names) == ["t", "other", "empty", "wide"]
    assert set(read(body_of(version), version, ["t", "x"]).metadata.topics) == {"t"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_truncated_response_is_refused(version: int) -> None:
    body = body_of(version)
    for end in range(0, len(body), 3):
        with pytest.raises(MalformedResponse, match="Metadata"):
            read(body[:end], version, ROWS)
    with pytest.raises(MalformedResponse, match="bytes after its end"):
        read(body + b"\0", version, ROWS)


@pytest.mark.parametrize("version", [4, 8, 9, 13])
def test_mutated_responses_are_decoded_or_refused(version: int) -> None:
    body, randomness = bytearray(body_of(version)), Random(version)
    refused = 0
    for _ in range(3_000):
        mutated = bytearray(body)
        for _ in range(randomness.randint(1, 3)):
            mutated[randomness.randrange(len(body))] = randomness.choice((0, 1, 127, 128, 255))
        try:
            for topic in read(bytes(mutated), version, ROWS).metadata.topics.values():
                assert len(dict(topic.partitions)) == len(topic.partitions)
        except MalformedResponse:
            refused += 1
    assert 0 < refused < 3_000


def test_tagged_fields_of_later_brokers_are_skipped() -> None:
    body = body_of(12)
    offset = body.index(struct.pack(">hiii", 9, 1, -1, 300))  # t[1], whose tags are last
    end = offset + 14 + (1 + 4) + 1 + (1 + 4)
    assert body[end] == 0
    tagged = body[:end] + b"\x02\x05\x03abc\x07\x00" + body[end + 1 :]
    for name in ("t", "wide"):
        expected = read(body, 12, ROWS).metadata.topics[name]
        assert read(tagged, 12, ROWS).metadata.topics[name] == expected


@pytest.mark.parametrize("wrong", [{"host": ""}, {"host": None}, {"port": -1}, {"port": 70_000}])
def test_a_broker_with_an_invalid_address_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(MalformedResponse, match="a broker with the invalid address"):
        read(body_of(12, **wrong), 12)


def test_metadata_is_immutable() -> None:
    metadata: Any = read(body_of(12), 12).metadata
    for change in (metadata.brokers, metadata.topics, metadata.topics["t"].partitions):
        with pytest.raises(TypeError):
            change[0] = TWO


@pytest.mark.parametrize("place", [(None, 9092), ("", 9092), ("k", 0), ("k", -1), ("k", 2**16)])
async def test_a_coordinator_with_an_invalid_address_is_refused(place: tuple[Any, int]) -> None:
    class RecordingListener:
        API_VERSION = 1

        async def ask_any(self, message: object) -> "RecordingListener":
            return self

        def to_object(self) -> dict[str, Any]:
            return {"error_code": 0, "host": place[0], "port": place[1]}

    coordinator = Coordinator("g", cast("Any", None), cast("Any", RecordingListener()))
    with pytest.raises(MalformedResponse, match=r"FindCoordinator.* a coordinator at"):
        await coordinator.find()
    assert coordinator.address is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_partitions_with_equal_and_different_layouts_are_decoded(version: int, seed: int) -> None:
    randomness = Random(seed)
    numbers = randomness.sample(range(10_000), 2_500)

    def some(limit: int) -> tuple[int, ...]:
        return tuple(range(randomness.randint(0, limit)))

    def partition() -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        usual = randomness.random() < 0.97
        return (
            randomness.randint(-1, 2),
            randomness.randint(0, 9),
            *(((1, 2, 3), (1, 2)) if usual else (some(200), some(4))),
        )

    reported = {number: partition() for number in numbers}
    reader = read(body_of(version, {"t": (0, reported)}), version)
    topic = reader.metadata.topics["t"]
    epoch_of = (lambda epoch: epoch) if version >= 7 else (lambda _: -1)
    expected = {
        number: Partition(leader, epoch_of(epoch), replicas, isr)
        for number, (leader, epoch, replicas, isr) in reported.items()
    }
    assert dict(topic.partitions) == expected
    assert {n: topic.leader(n) for n in numbers} == {
        n: (partition.leader, partition.epoch) for n, partition in expected.items()
    }
    assert topic.leader(10_001) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_repeats_known_metadata_is_not_decoded_again(version: int) -> None:
    rows: dict[str, Any] = {"t": (0, dict.fromkeys(range(50), (1, 5, (1, 2), (1,))))}
    body = body_of(version, rows)
    known = read(body, version).metadata
    again = read(body, version, known=known).metadata
    assert again.topics["t"].partitions is known.topics["t"].partitions
    assert again.topics["t"] == known.topics["t"]
    rows["t"][1][49] = (2, 6, (1, 2), (2,))
    changed = read(body_of(version, rows), version, known=known).metadata
    assert changed.topics["t"].partitions[49].leader == 2
    assert changed.topics["t"].partitions[48] == known.topics["t"].partitions[48]
    del rows["t"][1][49]
    assert (
        len(read(body_of(version, rows), version, known=known).metadata.topics["t"].partitions)
        == 49
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_truncated_repetition_is_refused(version: int) -> None:
    rows: dict[str, Any] = {"t": (0, dict.fromkeys(range(50), (1, 5, (1, 2), (1,))))}
    body = body_of(version, rows)
    known = read(body, version).metadata
    for end in range(len(body)):
        with pytest.raises(MalformedResponse):
            read(body[:end], version, known=known)
