"""A consumer in a ZooKeeper group, beside a classic connector."""

from typing import Any

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.handles import KafkaWithZooKeeper
from tests.support.connector_members import equal, expected_owners, open_member
from tests.support.helpers import until
from tests.support.real_consumer import next_of, reading, send, take
from tests.support.zookeeper_nodes import nodes_of


def in_zookeeper(kafka: KafkaWithZooKeeper, *topics: str, **options: Any) -> Consumer[Any, Any]:
    return Consumer(
        *topics,
        group_protocol="zookeeper",
        zookeeper_connect=kafka.zookeeper_connect,
        **{
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 200,
            "rebalance_backoff_ms": 300,
            **options,
        },
    )


async def test_a_consumer_and_a_connector_share_partitions_of_a_topic(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        in_zookeeper(kafka_zk, topic, group_id=group, consumer_id="a") as consumer,
        reading(consumer) as values,
    ):
        await send(kafka_zk, topic, range(40), 4)
        await until(lambda: len(values) == 40)
        async with open_member(kafka_zk, group, {topic: 1}, "b") as other:
            both = expected_owners(topic, 4, (f"{group}_a", 1), (other.id, 1))
            await until(lambda: equal(nodes.owners(), both))
            await until(lambda: len(consumer.assignment) == 2)
            await send(kafka_zk, topic, range(40, 80), 4)
            await until(lambda: len(values) + other.values.total() == 80)
            assert sorted([*values, *map(int, other.values)]) == list(range(80))
        await until(lambda: len(consumer.assignment) == 4)
        await until(lambda: consumer.health().ready)


async def test_offsets_are_committed_to_zookeeper_also_with_dual_commit(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic, group = await kafka_zk.topic(), kafka_zk.group()
    await send(kafka_zk, topic, range(20))
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        async with in_zookeeper(kafka_zk, topic, group_id=group) as consumer:
            await take(consumer, 8)
        assert await nodes.offsets() == {TopicPartition(topic, 0): 8}
        storage = {"offsets_storage": "kafka"}  # and in ZooKeeper: dual commit is on by default
        async with in_zookeeper(kafka_zk, topic, group_id=group, **storage) as two:
            assert await next_of(two) == 8
            assert await two.commit({TopicPartition(topic, 0): 12})
        assert await nodes.offsets() == {TopicPartition(topic, 0): 12}


async def test_a_changed_subscription_changes_the_registration(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    first, second, group = await kafka_zk.topic(), await kafka_zk.topic(), kafka_zk.group()
    await send(kafka_zk, second, range(3))
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        in_zookeeper(kafka_zk, first, group_id=group) as consumer,
    ):
        await consumer.wait_assigned()
        await consumer.subscribe(second)
        assert await take(consumer, 3) == [0, 1, 2]
        (registration,) = (await nodes.members()).values()
        assert registration["subscription"] == {second: 1}
        await consumer.unsubscribe()
        assert await nodes.members() == {}


async def test_a_pattern_is_registered_as_a_white_list(kafka_zk: KafkaWithZooKeeper) -> None:
    topic, group = await kafka_zk.topic(), kafka_zk.group()
    await send(kafka_zk, topic, range(3))
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        in_zookeeper(kafka_zk, pattern=f"{topic[:-2]}.*", group_id=group) as consumer,
    ):
        assert await take(consumer, 3) == [0, 1, 2]
        (registration,) = (await nodes.members()).values()
        assert registration["pattern"] == "white_list"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"zookeeper_connect": ""}, "`zookeeper_connect` is missing"),
        ({"session_timeout_ms": 6_000}, "zookeeper_session_timeout_ms"),
        ({"group_instance_id": "a"}, "has no effect"),
        ({"partition_assignment_strategy": "cooperative-sticky"}, "must be one of range"),
        ({"offsets_storage": "zookeper"}, "Did you mean zookeeper"),
        ({"group_id": None}, "group_id"),
    ],
)
def test_wrong_options_of_zookeeper_groups_are_refused(options: dict[str, Any], match: str) -> None:
    settings = {"group_id": "g", "zookeeper_connect": "zk:2181", "group_protocol": "zookeeper"}
    with pytest.raises(ConfigError, match=match):
        Consumer("t", **{**settings, **options})
