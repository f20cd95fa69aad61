"""The Java consumer as a test tool: start, events, freeze and stop."""

from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import (
    JavaChange,
    JavaConsumer,
    JavaConsumers,
    StartFailed,
)
from tests.support.helpers import produce, until
from tests.testing.servers.test_java_consumer import partitions

ROUND_ROBIN = {
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor"
}
COOPERATIVE = {
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
}
NEW_PROTOCOL = {"group.protocol": "consumer"}


async def send(kafka: KafkaHandle, topic: str, count: int) -> set[bytes]:
    values = {f"{topic}-{n}".encode() for n in range(count)}
    await produce(topic, values, bootstrap_servers=kafka.bootstrap_servers)
    return values


async def committed(kafka: KafkaHandle, group: str) -> int:
    """Return the sum of the group's offsets."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    result = await admin.list_consumer_group_offsets(group)
    await admin.close()
    return sum(reported.offset for reported in result.values())


async def until_committed(kafka: KafkaHandle, group: str, total: int) -> None:
    async def is_committed() -> bool:
        return await committed(kafka, group) == total

    await until(is_committed)


async def test_a_consumer_takes_over_partitions_of_a_killed_one(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    values = await send(kafka, topic, 20)
    consumer = await java_consumers.start(group, [topic], name="a")
    await consumer.until_received(20)
    assert {record.value for record in consumer.records} == values
    assert consumer.owned == partitions(topic, range(4))
    await until_committed(kafka, group, 20)  # after each poll

    other = await java_consumers.start(group, [topic], name="b")
    await consumer.until_owning(partitions(topic, [0, 1]))
    await other.until_owning(partitions(topic, [2, 3]))
    everything = frozenset(partitions(topic, range(4)))
    assert [change.kind for change in consumer.changes] == ["assigned", "revoked", "assigned"]
    assert consumer.changes[1].partitions == everything  # eager: everything
    assert other.records == []

    await consumer.kill()
    assert (consumer.state, consumer.owned, len(consumer.records)) == ("down", set(), 20)
    await other.until_owning(everything)  # after the session of the killed consumer
    await send(kafka, topic, 8)
    await other.until_received(8)
    await other.stop()
    assert await committed(kafka, group) == 28
    assert other.changes[-1] == JavaChange("revoked", everything)
    assert [*consumer.failed_commits, *other.failed_commits] == []


async def test_a_frozen_consumer_reports_lost_partitions_when_thawed(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    consumer = await java_consumers.start(group, [topic], name="a", properties=COOPERATIVE)
    await consumer.until_owning(partitions(topic, [0, 1]))
    other = await java_consumers.start(group, [topic], name="b", properties=COOPERATIVE)
    await other.until(lambda other: len(other.owned) == 1)
    await consumer.until(lambda consumer: len(consumer.owned) == 1)
    retained, moved = frozenset(consumer.owned), frozenset(other.owned)
    # cooperative: partitions that stay are not revoked
    assert {change.partitions for change in consumer.changes if change.kind == "revoked"} == {moved}

    consumer.freeze()
    assert consumer.state == "paused"
    await other.until_owning(retained | moved)
    consumer.thaw()
    await consumer.until(lambda consumer: JavaChange("lost", retained) in consumer.changes)
    await consumer.until(lambda consumer: len(consumer.owned) == 1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_pattern_matches_topics_in_both_protocols(
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
    assert await committed(kafka, group) == 0  # the next auto-commit is in an hour
    await member.stop()
    assert await committed(kafka, group) == 6  # committed by stop
    assert member.owned == set()

    await send(kafka, topics[0], 2)
    await member.start()  # continues at the committed offsets
    await member.until_received(8)
    assert sorted(r.offset for r in member.records if r.topic == topics[0]) == [0, 1, 2, 3, 4]


async def test_a_consumer_commits_after_commit_ms(
    kafka: KafkaHandle, java_consumers: JavaConsumers
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, 3)
    await java_consumers.start(group, [topic], commit_ms=200)
    await until_committed(kafka, group, 3)


async def test_a_failed_start_reports_the_cause_and_leaves_no_file(
    kafka: KafkaHandle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    strange = {"auto.offset.reset": "sometimes"}
    member = JavaConsumer(kafka.bootstrap_servers, kafka.group(), ["t"], properties=strange)
    with pytest.raises(StartFailed, match=r"(?s)exit code 1.*Invalid value sometimes"):
        await member.start()
    assert list(tmp_path.iterdir()) == []
    assert member.state == "down"
