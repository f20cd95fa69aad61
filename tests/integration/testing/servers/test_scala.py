"""The Scala consumer of Kafka 1.1 as a test tool: start, events, freeze and stop."""

from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from asyncconsumer.group.zookeeper.assignors import (
    GroupInfo,
    GroupMemberInfo,
    by_range,
    partitions_of_consumer,
    round_robin,
)
from asyncconsumer.testing.handles import KafkaWithZooKeeper
from asyncconsumer.testing.servers import (
    ScalaConsumer,
    ScalaConsumers,
    StartFailed,
)
from asyncconsumer.types import TopicPartition
from tests.support.helpers import produce, until
from tests.support.zookeeper_nodes import GroupNodes, nodes_of


async def send(kafka: KafkaWithZooKeeper, topic: str, count: int) -> set[bytes]:
    values = {f"{topic}-{n}".encode() for n in range(count)}
    await produce(topic, values, bootstrap_servers=kafka.bootstrap_servers)
    return values


async def committed(nodes: GroupNodes, total: int) -> bool:
    return sum((await nodes.offsets()).values()) == total


async def test_members_divide_topics_by_range_and_release_them_when_stopped(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    values = await send(kafka_zk, topic, 20)
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        first = await scala_consumers.start(group, {topic: 2}, name="a")
        await first.until_received(20)
        assert {record.value for record in first.records} == values
        assert {record.stream for record in first.records} == {0, 1}
        assert (await nodes.members())[first.consumer_id]["pattern"] == "static"
        await until(lambda: committed(nodes, 20))

        second = await scala_consumers.start(group, {topic: 1}, name="b")
        together = GroupInfo(
            [
                GroupMemberInfo(first.consumer_id, {topic: 2}),
                GroupMemberInfo(second.consumer_id, {topic: 1}),
            ],
            {topic: range(4)},
        )
        expected = by_range(together)
        await first.until_owning(partitions_of_consumer(first.consumer_id, expected))
        await second.until_owning(partitions_of_consumer(second.consumer_id, expected))
        assert await nodes.owners() == expected == first.owners == second.owners
        assert first.releases == [set(), {TopicPartition(topic, n) for n in range(4)}]

        await first.stop()
        assert first.consumer_id not in await nodes.members()
        assert first.consumer_id not in str(await nodes.owners())
        assert (first.state, first.owned, len(first.records)) == ("down", {}, 20)
        await second.until_owning([TopicPartition(topic, n) for n in range(4)])
        await send(kafka_zk, topic, 8)
        await second.until_received(8)
        await second.stop()
        assert await committed(nodes, 28)  # committed by stop


async def test_wildcards_are_divided_by_round_robin(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topics = [await kafka_zk.topic(partitions=3), await kafka_zk.topic(partitions=2)]
    group = kafka_zk.group()
    stem = topics[0].removesuffix("-1")
    by_round_robin = {"partition.assignment.strategy": "roundrobin"}
    white = await scala_consumers.start(
        group, {f"{stem}-.*": 2}, pattern="white_list", name="w", properties=by_round_robin
    )
    black = await scala_consumers.start(
        group, {f"(?!{stem}-).*": 1}, pattern="black_list", name="b", properties=by_round_robin
    )
    members = [
        GroupMemberInfo(white.consumer_id, dict.fromkeys(topics, 2)),
        GroupMemberInfo(black.consumer_id, dict.fromkeys(topics, 1)),
    ]
    expected = round_robin(GroupInfo(members, {topics[0]: range(3), topics[1]: range(2)}))
    await white.until_owning(partitions_of_consumer(white.consumer_id, expected))
    await black.until_owning(partitions_of_consumer(black.consumer_id, expected))

    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        assert await nodes.owners() == expected
        registered = await nodes.members()
    assert registered[white.consumer_id]["pattern"] == "white_list"
    assert registered[white.consumer_id]["subscription"] == {f"{stem}-.*": 2}
    assert registered[black.consumer_id]["pattern"] == "black_list"


async def test_a_frozen_member_loses_its_partitions_and_rejoins_when_thawed(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=2), kafka_zk.group()
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    short = {"zookeeper.session.timeout.ms": "2000"}
    consumer = await scala_consumers.start(group, {topic: 1}, name="a", properties=short)
    other = await scala_consumers.start(group, {topic: 1}, name="b", properties=short)
    await consumer.until_owning(partitions[:1])

    consumer.freeze()
    assert consumer.state == "paused"
    await other.until_owning(partitions)

    consumer.thaw()
    await consumer.until_owning(partitions[:1])
    await other.until_owning(partitions[1:])
    await send(kafka_zk, topic, 10)
    await consumer.until(lambda consumer: len(consumer.records) + len(other.records) >= 10)
    assert {r.partition for r in consumer.records} | {r.partition for r in other.records} == {0, 1}

    await consumer.kill()
    assert consumer.state == "down"
    await other.until_owning(partitions)  # after the session of the killed member


async def test_a_dual_commit_writes_to_kafka_and_zookeeper(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(), kafka_zk.group()
    await send(kafka_zk, topic, 7)
    both = {"offsets.storage": "kafka", "dual.commit.enabled": "true"}
    member = await scala_consumers.start(group, {topic: 1}, properties=both)
    await member.until_received(7)
    await member.stop()

    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_zk.bootstrap_servers)
    await admin.start()
    in_kafka = await admin.list_consumer_group_offsets(group)
    await admin.close()
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        in_zookeeper = await nodes.offsets()
    assert {partition: result.offset for partition, result in in_kafka.items()} == in_zookeeper
    assert in_zookeeper == {TopicPartition(topic, 0): 7}

    await send(kafka_zk, topic, 3)
    await member.start()  # continues at the committed offsets
    await member.until_received(10)
    assert [record.offset for record in member.records] == list(range(10))


async def test_the_console_consumer_shares_a_group(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(), kafka_zk.group()
    smallest = {"auto.offset.reset": "smallest"}
    console = await scala_consumers.start_console(group, topic, name="c", properties=smallest)
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        registered = (await nodes.members())[console.consumer_id]
        assert (registered["pattern"], registered["subscription"]) == ("white_list", {topic: 1})
        assert await nodes.owners() == {TopicPartition(topic, 0): f"{console.consumer_id}-0"}
        values = await send(kafka_zk, topic, 5)
        await console.until(lambda console: len(console.values) == 5)
        await console.stop()
        assert {value.encode() for value in console.values} == values
        assert await nodes.members() == {}


async def test_a_failed_start_reports_the_cause_and_leaves_no_file(
    kafka_zk: KafkaWithZooKeeper, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    member = ScalaConsumer(
        kafka_zk.zookeeper_connect,
        kafka_zk.group(),
        {"t": 1},
        properties={"auto.offset.reset": "sometimes"},
    )
    with pytest.raises(StartFailed, match=r"(?s)exit code 1.*Wrong value sometimes"):
        await member.start()
    assert list(tmp_path.iterdir()) == []
    assert member.state == "down"
