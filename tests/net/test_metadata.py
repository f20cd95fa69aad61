"""Metadata as values: what is kept, what is replaced, what is refused."""

import itertools
from typing import Any, cast
from uuid import UUID

import pytest

from asyncconsumer.errors import (
    AccessDenied,
    InvalidTopic,
    LeaderNotAvailable,
    MalformedResponse,
    TopicAccessDenied,
    UnknownTopicOrPartition,
)
from asyncconsumer.model import Address, TopicPartition
from asyncconsumer.net import topic_names
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.metadata import (
    NO_LEADER,
    Broker,
    Leader,
    Metadata,
    Partition,
    Topic,
    read_metadata,
)

pytestmark = pytest.mark.fast

ONE, TWO = Broker(1, Address("a", 1)), Broker(2, Address("b", 2), "rack")
FIRST, SECOND = UUID(int=1), UUID(int=2)
T0 = TopicPartition("t", 0)


def seen(topic_id: UUID | None = FIRST, **partitions: tuple[int, int]) -> Metadata:
    """Topic t with a leader and an epoch of each partition, `p0=(leader, epoch)`."""
    rows = {int(name[1:]): Partition(*place) for name, place in partitions.items()}
    return Metadata({1: ONE, 2: TWO}, 1, {"t": Topic("t", topic_id, rows)})


def test_a_leader_is_a_broker_and_an_epoch() -> None:
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
def test_without_a_leader_there_is_a_reason(metadata: Metadata, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="t"):
        metadata.leader(T0)


@pytest.mark.parametrize(
    ("before", "told", "after"),
    [
        ((1, 5), (2, 6), (2, 6)),
        ((1, 5), (2, 5), (2, 5)),  # the same epoch told again, perhaps without the leader
        ((1, 5), (2, 4), (1, 5)),  # a broker that is behind
        ((1, 5), (2, -1), (1, 5)),
        ((1, -1), (2, -1), (2, -1)),  # brokers that know no epochs
    ],
)
def test_an_older_epoch_never_replaces_a_newer_one(
    before: tuple[int, int], told: tuple[int, int], after: tuple[int, int]
) -> None:
    assert seen(p0=before).updated(seen(p0=told)) == seen(p0=after)


def test_a_topic_that_was_created_again_begins_again() -> None:
    assert seen(p0=(1, 9)).updated(seen(SECOND, p0=(2, 0))) == seen(SECOND, p0=(2, 0))


def test_partitions_come_and_go_with_the_newest_answer() -> None:
    before, told = seen(p0=(1, 5), p1=(1, 9)), seen(p0=(1, 6), p2=(2, 0))
    assert before.updated(told) == told


def test_other_topics_and_the_newest_brokers_are_kept() -> None:
    moved = Metadata({1: Broker(1, Address("c", 3))}, 1, {"u": Topic("u")})
    both = seen(p0=(1, 5)).updated(moved)
    assert set(both.topics) == {"t", "u"}
    assert both.leader(T0).broker.address == Address("c", 3)


def answer(**changes: Any) -> dict[str, Any]:
    broker = {"node_id": 1, "host": "a", "port": 1, "rack": None}
    return {"brokers": [broker | changes], "controller_id": 1, "topics": []}


@pytest.mark.parametrize("wrong", [{"host": ""}, {"host": None}, {"port": -1}, {"port": 70_000}])
def test_a_broker_that_cannot_be_reached_by_anyone_is_refused(wrong: dict[str, Any]) -> None:
    assert read_metadata(answer(), 12).brokers == {1: ONE}
    with pytest.raises(MalformedResponse, match="a broker at"):
        read_metadata(answer(**wrong), 12)


def topic_row(name: str | None, error_code: int = 0) -> dict[str, Any]:
    return {"name": name, "error_code": error_code, "topic_id": FIRST, "partitions": []}


ILLEGAL = ["../../x", "..", ".", "a/b", "a b", "a\n", "a:b", "ü", "\0", "t" * 250, "started at {}"]


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_topic_that_kafka_does_not_allow_is_left_out(name: str) -> None:
    told = answer() | {"topics": [topic_row("t"), topic_row(name), topic_row(None)]}
    assert list(read_metadata(told, 12).topics) == ["t"]
    refused = answer() | {"topics": [topic_row(name, InvalidTopic.code)]}
    with pytest.raises(InvalidTopic):  # who asked for that name is answered
        read_metadata(refused, 12).leader(TopicPartition(name, 0))


@pytest.mark.parametrize(
    "name", ["t", "T-1_x.y", "t" * 249, "...", ".hidden", "__consumer_offsets"]
)
def test_a_topic_that_kafka_allows_is_kept(name: str) -> None:
    told = answer() | {"topics": [topic_row(name)]}
    assert list(read_metadata(told, 12).topics) == [name]


def test_a_flood_of_illegal_names_is_logged_in_a_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_names, "_dropped", itertools.count(1))
    rows = [topic_row(f"../{number}") for number in range(1000)]
    for _ in range(10):
        read_metadata(answer() | {"topics": rows}, 12)
    assert "'../0', which Kafka does not allow" in caplog.messages[0]
    assert 1 <= len(caplog.messages) < 20


def test_metadata_cannot_be_changed() -> None:
    brokers: Any = read_metadata(answer(), 12).brokers
    with pytest.raises(TypeError):
        brokers[2] = TWO


@pytest.mark.parametrize("place", [(None, 9092), ("", 9092), ("k", 0), ("k", -1), ("k", 2**16)])
async def test_a_coordinator_that_is_nowhere_makes_no_sense(place: tuple[Any, int]) -> None:
    class Told:
        API_VERSION = 1

        async def ask_any(self, message: object) -> "Told":
            return self

        def to_object(self) -> dict[str, Any]:
            return {"error_code": 0, "host": place[0], "port": place[1]}

    coordinator = Coordinator("g", cast("Any", None), cast("Any", Told()))
    with pytest.raises(MalformedResponse, match=r"FindCoordinator.* a coordinator at"):
        await coordinator.find()
    assert coordinator.address is None
