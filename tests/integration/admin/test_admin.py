"""`Admin` on real Kafka."""

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer import Admin, ConfigError, Consumer, SimpleConsumer, TopicPartition
from asyncconsumer.errors import (
    GroupActive,
    GroupIdNotFound,
    InvalidPartitions,
    InvalidReplicationFactor,
    NonEmptyGroup,
    SecurityDisabled,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle, KafkaWithZooKeeper
from asyncconsumer.testing.servers import SASL_PLAIN_UNENCRYPTED, Kafka
from tests.support.helpers import until
from tests.support.zookeeper_nodes import nodes_of


async def send(kafka: KafkaHandle, topic: str, count: int, *, seconds_ago: int = 0) -> None:
    """Send records to partition 0 with timestamps in the past."""
    moment = int(datetime.now(UTC).timestamp() * 1000) - seconds_ago * 1000
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=0, timestamp_ms=moment)
        await producer.flush()


async def commit(kafka: KafkaHandle, group: str, topic: str, offset: int) -> None:
    async with SimpleConsumer(kafka.bootstrap_servers) as simple:
        await simple.commit_offsets(group, {TopicPartition(topic, 0): offset})


async def test_topics_are_created_described_changed_and_deleted(kafka: KafkaHandle) -> None:
    name = kafka.group()  # any unused name
    async with Admin(kafka.bootstrap_servers) as admin:
        await admin.create_topic(name, partitions=2, configs={"retention.ms": "60000"})
        assert name in await admin.topics()
        assert "__consumer_offsets" not in await admin.topics()
        with pytest.raises(TopicAlreadyExists):
            await admin.create_topic(name)
        with pytest.raises(InvalidReplicationFactor):
            await admin.create_topic(f"{name}-2", partitions=1, replication_factor=9)
        await admin.add_partitions(name, 3)
        with pytest.raises(InvalidPartitions):
            await admin.add_partitions(name, 2)
        (topic,) = await admin.describe_topics([name])
        assert [partition.partition for partition in topic.partitions] == [0, 1, 2]
        (broker,) = await admin.brokers()
        assert all(partition.leader == broker.node_id for partition in topic.partitions)
        assert not any(partition.is_under_replicated for partition in topic.partitions)
        assert topic in await admin.describe_topics()
        assert json.dumps(dataclasses.asdict(topic))

        await admin.set_topic_configs(name, {"retention.ms": None, "cleanup.policy": "compact"})
        configs = {entry.name: entry for entry in await admin.topic_configs(name)}
        assert (configs["cleanup.policy"].value, configs["cleanup.policy"].source) == (
            "compact",
            "topic",
        )
        assert configs["retention.ms"].source != "topic"
        with pytest.raises(SecurityDisabled):
            await admin.acls()

        await admin.delete_topics([name])
        with pytest.raises(UnknownTopicOrPartition):
            await admin.describe_topics([name])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_with_members_is_described_reset_and_deleted(
    kafka: KafkaHandle, protocol: str
) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, 5)
    async with Admin(kafka.bootstrap_servers) as admin:
        with pytest.raises(GroupIdNotFound):
            await admin.describe_group(group)
        async with Consumer(
            topic,
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=group,
            group_protocol=protocol,  # type: ignore[arg-type]
            auto_offset_reset="earliest",
            max_records=3,
            client_id="reader",
        ) as consumer:
            async for _ in consumer:
                pass
            await consumer.commit()
            description = await admin.describe_group(group)
            assert (description.kind, description.state) == (protocol, "Stable")
            (member,) = description.members
            assert (member.client_id, member.assignment) == ("reader", {topic: (0, 1, 2)})
            assert member.subscription == (topic,)
            listed = {listing.group: listing for listing in await admin.groups()}
            assert listed[group].kind == protocol

            lag = await admin.lag(group, seconds=True)
            rows = {row.partition: row for row in lag.partitions}
            assert (rows[0].committed, rows[0].end, rows[0].lag) == (3, 5, 2)
            assert rows[0].member_id == member.member_id
            assert rows[0].lag_seconds is not None
            assert 0 <= rows[0].lag_seconds < 60
            with pytest.raises(GroupActive):
                await admin.reset_offsets(group, "earliest")
            with pytest.raises(NonEmptyGroup):
                await admin.delete_group(group)
        await until(lambda: _is_empty(admin, group))
        await admin.reset_offsets(group, "earliest", topics=[topic])
        assert (await admin.committed(group))[TopicPartition(topic, 0)] == 0
        await admin.delete_offsets(group, [TopicPartition(topic, 0)])
        assert TopicPartition(topic, 0) not in await admin.committed(group)
        await admin.delete_group(group)
        with pytest.raises(GroupIdNotFound):
            await admin.describe_group(group)


async def _is_empty(admin: Admin, group: str) -> bool:
    return not (await admin.describe_group(group)).members


async def test_offsets_are_reset_to_positions_numbers_times_and_shifts(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, 4, seconds_ago=3600)
    await send(kafka, topic, 6)
    await commit(kafka, group, topic, 5)
    tp = TopicPartition(topic, 0)
    async with Admin(kafka.bootstrap_servers) as admin:
        (planned,) = await admin.reset_offsets(group, "earliest", dry_run=True)
        assert (planned.before, planned.after) == (5, 0)
        assert await admin.committed(group) == {tp: 5}
        half_an_hour_ago = datetime.now(UTC) - timedelta(minutes=30)
        for to, offset in (
            ("latest", 10),
            ("-3", 7),
            ("+1", 8),
            (2, 2),
            (half_an_hour_ago, 4),
            ("earliest", 0),
            (timedelta(minutes=30), 4),
            ("30m", 4),
            ({tp: 9}, 9),
            (99, 10),
        ):
            await admin.reset_offsets(group, to)
            assert await admin.committed(group) == {tp: offset}, to
        with pytest.raises(UnknownTopicOrPartition):
            await admin.reset_offsets(group, 0, topics=["no-such-topic"])
        with pytest.raises(ConfigError, match="no committed offset"):
            await admin.reset_offsets(group, "+1", topics=[topic])
        await admin.reset_offsets(group, 0, topics=[topic])
        assert await admin.committed(group) == {tp: 0, TopicPartition(topic, 1): 0}
        with pytest.raises(ConfigError, match=f"{group}x' .* has no committed offsets to reset"):
            await admin.reset_offsets(f"{group}x", "earliest")


async def test_an_unknown_topic_is_reported_with_the_most_similar_name(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    async with Admin(kafka.bootstrap_servers) as admin:
        with pytest.raises(UnknownTopicOrPartition, match=f"did you mean '{topic}'"):
            await admin.describe_topics([f"{topic}x"])
        with pytest.raises(UnknownTopicOrPartition, match="topic 'q'") as unlike_any:
            await admin.describe_topics(["q"])
    assert "did you mean" not in str(unlike_any.value)


async def test_lag_in_seconds_is_the_age_of_the_first_unread_record(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, 2, seconds_ago=500)
    await send(kafka, topic, 3, seconds_ago=100)
    async with Admin(kafka.bootstrap_servers) as admin:
        for offset, lag, seconds in ((1, 4, 500), (2, 3, 100), (5, 0, 0)):
            await commit(kafka, group, topic, offset)
            result = await admin.lag(group, seconds=True)
            assert result.total == lag
            assert result.max_seconds is not None
            assert seconds <= result.max_seconds < seconds + 60
        assert (await admin.lag(group)).max_seconds is None


async def test_a_group_in_zookeeper_is_described_reset_and_deleted(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic, group = await kafka_zk.topic(partitions=1), kafka_zk.group()
    await send(kafka_zk, topic, 4, seconds_ago=100)
    async with Admin(zookeeper_connect=kafka_zk.zookeeper_connect) as admin:
        async with Consumer(
            topic,
            bootstrap_servers=kafka_zk.bootstrap_servers,
            zookeeper_connect=kafka_zk.zookeeper_connect,
            group_id=group,
            group_protocol="zookeeper",
            auto_offset_reset="earliest",
            max_records=3,
        ) as consumer:
            async for _ in consumer:
                pass
            await consumer.commit()
            description = await admin.describe_group(group)
            (member,) = description.members
            assert (description.kind, member.assignment) == ("zookeeper", {topic: (0,)})
            with pytest.raises(GroupActive):
                await admin.reset_offsets(group, "earliest")
        listed = {listing.group: listing for listing in await admin.groups()}
        assert (listed[group].kind, listed[group].state) == ("zookeeper", "Empty")
        (row,) = (await admin.lag(group, seconds=True)).partitions
        assert (row.committed, row.end, row.lag) == (3, 4, 1)
        assert row.lag_seconds is not None
        assert 100 <= row.lag_seconds < 160
        await admin.reset_offsets(group, "earliest")
        async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
            assert await nodes.offsets() == {TopicPartition(topic, 0): 0}
        await admin.delete_offsets(group, [TopicPartition(topic, 0)])
        assert await admin.committed(group) == {}
        await admin.delete_group(group)
        assert group not in {listing.group for listing in await admin.groups()}
        await admin.create_topic(f"{topic}-2", partitions=1, replication_factor=1)
        await admin.delete_topics([f"{topic}-2"])


async def test_preferred_leaders_are_elected(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic()
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        (described,) = await admin.describe_topics([topic])
        preferred = described.partitions[0].replicas[0]
        broker = kafka_cluster.server.brokers[preferred]
        await broker.kill()

        async def moved() -> bool:
            (now,) = await admin.describe_topics([topic])
            return now.partitions[0].leader not in (None, preferred)

        await until(moved)
        await broker.start()

        async def in_sync() -> bool:
            (now,) = await admin.describe_topics([topic])
            return preferred in now.partitions[0].in_sync

        await until(in_sync)
        assert await admin.elect_leaders([topic]) in ([TopicPartition(topic, 0)], [])

        async def elected() -> bool:
            (now,) = await admin.describe_topics([topic])
            return now.partitions[0].leader == preferred

        await until(elected)
        assert await admin.elect_leaders([topic]) == []


async def test_acls_are_listed_over_a_listener_with_a_login(tmp_path: Path) -> None:
    async with Kafka(listeners=[SASL_PLAIN_UNENCRYPTED], acls=True) as kafka:
        await kafka.admin.allow("alice", "cluster", "kafka-cluster", "describe")
        await kafka.admin.allow("alice", "topic", "orders", "read")
        settings = kafka.client_settings(SASL_PLAIN_UNENCRYPTED, "alice")
        async with Admin(**settings) as admin:  # type: ignore[arg-type]
            entries = await admin.acls()
    assert ("User:alice", "read", "allow", "topic", "orders", "literal") in {
        (
            entry.principal,
            entry.operation,
            entry.permission,
            entry.resource_type,
            entry.resource,
            entry.pattern,
        )
        for entry in entries
    }


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        Admin()
    with pytest.raises(ConfigError, match="no_such"):
        Admin("localhost:9092", no_such=1)  # type: ignore[call-arg]
