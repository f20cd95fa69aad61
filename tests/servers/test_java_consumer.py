"""The Java client's consumer as a tool: it runs, tells, freezes and ends when told to."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from asyncconsumer import ConfigError
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import (
    JavaChange,
    JavaConsumer,
    JavaConsumers,
    JavaRecord,
    ServerError,
    StartFailed,
)
from asyncconsumer.testing.servers.java_consumer import _Told
from asyncconsumer.types import TopicPartition
from tests.helpers import produce, until

ROUND_ROBIN = {
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor"
}
COOPERATIVE = {
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
}
NEW_PROTOCOL = {"group.protocol": "consumer"}


def partitions(topic: str, numbers: Iterable[int]) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in numbers}


async def send(kafka: KafkaHandle, topic: str, count: int) -> set[bytes]:
    values = {f"{topic}-{n}".encode() for n in range(count)}
    await produce(topic, values, bootstrap_servers=kafka.bootstrap_servers)
    return values


async def committed(kafka: KafkaHandle, group: str) -> int:
    """The sum of the group's offsets."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    found = await admin.list_consumer_group_offsets(group)
    await admin.close()
    return sum(told.offset for told in found.values())


async def until_committed(kafka: KafkaHandle, group: str, total: int) -> None:
    async def is_committed() -> bool:
        return await committed(kafka, group) == total

    await until(is_committed)


async def test_two_divide_a_topic_and_one_takes_over_when_the_other_is_killed(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    values = await send(kafka, topic, 20)
    one = await java_consumers.start(group, [topic], name="a")
    await one.until_received(20)
    assert {record.value for record in one.records} == values
    assert one.owned == partitions(topic, range(4))
    await until_committed(kafka, group, 20)  # after each poll

    other = await java_consumers.start(group, [topic], name="b")
    await one.until_owning(partitions(topic, [0, 1]))
    await other.until_owning(partitions(topic, [2, 3]))
    everything = frozenset(partitions(topic, range(4)))
    assert [change.kind for change in one.changes] == ["assigned", "revoked", "assigned"]
    assert one.changes[1].partitions == everything  # eager: everything
    assert other.records == []

    await one.kill()
    assert (one.state, one.owned, len(one.records)) == ("down", set(), 20)
    await other.until_owning(everything)  # once the session of the dead one is over
    await send(kafka, topic, 8)
    await other.until_received(8)
    await other.stop()
    assert await committed(kafka, group) == 28
    assert other.changes[-1] == JavaChange("revoked", everything)
    assert [*one.failed_commits, *other.failed_commits] == []


async def test_a_frozen_one_loses_what_it_has_and_is_told_when_thawed(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    one = await java_consumers.start(group, [topic], name="a", properties=COOPERATIVE)
    await one.until_owning(partitions(topic, [0, 1]))
    other = await java_consumers.start(group, [topic], name="b", properties=COOPERATIVE)
    await other.until(lambda other: len(other.owned) == 1)
    await one.until(lambda one: len(one.owned) == 1)
    kept, moved = frozenset(one.owned), frozenset(other.owned)
    # cooperative: what stays is not revoked
    assert {change.partitions for change in one.changes if change.kind == "revoked"} == {moved}

    one.freeze()
    assert one.state == "paused"
    await other.until_owning(kept | moved)
    one.thaw()
    await one.until(lambda one: JavaChange("lost", kept) in one.changes)
    await one.until(lambda one: len(one.owned) == 1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_pattern_finds_topics_in_both_protocols(
    kafka: KafkaHandle, java_consumers: JavaConsumers, protocol: str
) -> None:
    topics, group = [await kafka.topic(), await kafka.topic(partitions=2)], kafka.group()
    stem = topics[0].removesuffix("-1")
    properties = NEW_PROTOCOL if protocol == "consumer" else ROUND_ROBIN
    member = await java_consumers.start(
        group, pattern=f"{stem}-[12]", properties=properties, commit_ms=3_600_000
    )
    await member.until_owning(partitions(topics[0], [0]) | partitions(topics[1], [0, 1]))
    for topic in topics:
        await send(kafka, topic, 3)
    await member.until_received(6)
    assert await committed(kafka, group) == 0  # in an hour
    await member.stop()
    assert await committed(kafka, group) == 6  # or on its way out
    assert member.owned == set()

    await send(kafka, topics[0], 2)
    await member.start()  # again: it goes on from there
    await member.until_received(8)
    assert sorted(r.offset for r in member.records if r.topic == topics[0]) == [0, 1, 2, 3, 4]


async def test_commits_come_in_their_time(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, 3)
    await java_consumers.start(group, [topic], commit_ms=200)
    await until_committed(kafka, group, 3)


async def test_one_that_cannot_start_says_why_and_leaves_nothing(
    kafka: KafkaHandle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    strange = {"auto.offset.reset": "sometimes"}
    member = JavaConsumer(kafka.bootstrap_servers, kafka.group(), ["t"], properties=strange)
    with pytest.raises(StartFailed, match=r"(?s)exit code 1.*Invalid value sometimes"):
        await member.start()
    assert list(tmp_path.iterdir()) == []
    assert member.state == "down"


@pytest.mark.fast
def test_what_a_member_tells_is_read_as_it_comes(tmp_path: Path) -> None:
    events, told = tmp_path / "events", _Told()
    told.read(events)  # not there yet
    record = '{"event":"record","topic":"t","partition":1,"offset":7,"key":"","value":null,'
    events.write_text('{"event":"assigned","partitions":{"t":[1,2]}}\n' + record)
    told.read(events)
    assert (told.owned, told.records) == (partitions("t", [1, 2]), [])

    with events.open("a") as file:
        file.write('"at_ms":5}\n{"event":"lost","partitions":{"t":[1]}}\n{"event":"ready"}\n')
        file.write('{"event":"commit failed","error":"why"}\n')
    told.read(events)
    assert told.records == [JavaRecord("t", 1, 7, b"", None, 5)]
    assert (told.owned, told.ready, told.failed_commits) == (partitions("t", [2]), True, ["why"])
    assert told.changes[-1] == JavaChange("lost", frozenset(partitions("t", [1])))


@pytest.mark.fast
async def test_what_a_member_that_is_down_says() -> None:
    member = JavaConsumer("k:9092", "g", ["t"], name="a")
    assert repr(member) == "<JavaConsumer g_a, down>"
    assert (member.records, member.owned, member.changes) == ([], set(), [])
    with pytest.raises(ServerError, match="g_a, down> has not been started"):
        member.freeze()
    with pytest.raises(ServerError, match="g_a, down> did not get there"):
        await member.until_received(1)
    await member.stop()
    await member.kill()


@pytest.mark.fast
def test_subscriptions_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="subscribes to topics or to a pattern"):
        JavaConsumer("k:9092", "g")
    with pytest.raises(ConfigError, match="subscribes to topics or to a pattern"):
        JavaConsumer("k:9092", "g", ["t"], pattern="t.*")
    with pytest.raises(ConfigError, match="topics must be a list of names, got the text 't'"):
        JavaConsumer("k:9092", "g", "t")
