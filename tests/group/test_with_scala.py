"""Our members and Kafka's classic Scala consumer in one group: they share, hand over, commit."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.new_partitions import NewPartitions

from asyncconsumer.connector import ConsumerConnector
from asyncconsumer.group.assign import Group, Member, by_range, round_robin
from asyncconsumer.group.filters import TopicFilter, Whitelist
from asyncconsumer.model import TopicPartition
from asyncconsumer.streams.messages import MessageStream
from asyncconsumer.testing.handles import KafkaWithZooKeeper
from asyncconsumer.testing.servers import ScalaConsumer, ScalaConsumers
from tests.group.nodes import nodes_of
from tests.helpers import produce, until


class Ours:
    """One of our members, and what it was given."""

    def __init__(self, connector: ConsumerConnector) -> None:
        self.connector = connector
        self.values: Counter[bytes] = Counter()

    @property
    def id(self) -> str:
        assert self.connector.consumer_id is not None
        return self.connector.consumer_id

    async def read(self, stream: MessageStream[Any, Any]) -> None:
        async for record in stream:
            assert record.value is not None
            self.values[record.value] += 1


@asynccontextmanager
async def member(
    kafka: KafkaWithZooKeeper,
    group: str,
    topics: dict[str, int] | TopicFilter,
    name: str,
    streams: int = 1,
    **options: Any,
) -> AsyncIterator[Ours]:
    connector = ConsumerConnector(
        zookeeper_connect=kafka.zookeeper_connect,
        group_id=group,
        consumer_id=name,
        **{
            "auto_offset_reset": "smallest",
            "auto_commit_interval_ms": 200,
            "rebalance_backoff_ms": 300,
            "rebalance_max_retries": 40,
            **options,
        },
    )
    async with connector, asyncio.TaskGroup() as readers:
        ours = Ours(connector)
        if isinstance(topics, TopicFilter):
            made = await connector.create_message_streams_by_filter(topics, streams)
        else:
            of_topics = await connector.create_message_streams(topics)
            made = [stream for of_topic in of_topics.values() for stream in of_topic]
        for stream in made:
            readers.create_task(ours.read(stream))
        yield ours
        await connector.shutdown()


def numbers(topic: str, count: int, start: int = 0) -> list[bytes]:
    return [f"{topic}-{n}".encode() for n in range(start, start + count)]


async def send(kafka: KafkaWithZooKeeper, topic: str, count: int, start: int = 0) -> None:
    await produce(topic, numbers(topic, count, start), bootstrap_servers=kafka.bootstrap_servers)


def received(*members: Ours | ScalaConsumer) -> Counter[bytes]:
    total: Counter[bytes] = Counter()
    for one in members:
        if isinstance(one, Ours):
            total += one.values
        else:
            total.update(record.value or b"" for record in one.records)
    return total


def all_of(values: Iterable[bytes], *members: Ours | ScalaConsumer) -> bool:
    return set(received(*members)) >= set(values)


def shares(topic: str, partitions: int, *threads: tuple[str, int], strategy: Any = by_range) -> Any:
    members = [Member(who, {topic: count}) for who, count in threads]
    return strategy(Group(members, {topic: range(partitions)}))


@pytest.mark.parametrize(("strategy", "rule"), [("range", by_range), ("roundrobin", round_robin)])
async def test_they_divide_partitions_as_two_scala_members_would(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers, strategy: str, rule: Any
) -> None:
    topic, group = await kafka_zk.topic(partitions=8), kafka_zk.group()
    await send(kafka_zk, topic, 80)
    properties = {"partition.assignment.strategy": strategy}
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        scala = await scala_consumers.start(group, {topic: 2}, name="s", properties=properties)
        await scala.until_received(80)
        options = {"partition_assignment_strategy": strategy}
        async with member(kafka_zk, group, {topic: 3}, "o", **options) as ours:
            expected = shares(topic, 8, (scala.consumer_id, 2), (ours.id, 3), strategy=rule)
            await until(lambda: _equal(nodes.owners(), expected))
            await send(kafka_zk, topic, 80, 80)
            await until(lambda: all_of(numbers(topic, 160), scala, ours))
        # we left: what we had goes back, from where we committed
        everything = [TopicPartition(topic, n) for n in range(8)]
        await scala.until_owning(everything)
        await send(kafka_zk, topic, 80, 160)
        await until(lambda: all_of(numbers(topic, 240), scala, ours))
        assert max(received(ours).values()) == 1
        assert not set(received(ours)) & set(numbers(topic, 80, 160))


async def _equal(read: Any, expected: Any) -> bool:
    return bool(await read == expected)


async def test_a_killed_scala_member_is_replaced_and_nothing_is_lost(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    scala = await scala_consumers.start(group, {topic: 1}, name="s")
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        member(kafka_zk, group, {topic: 1}, "o") as ours,
    ):
        await until(
            lambda: _equal(nodes.owners(), shares(topic, 4, (scala.consumer_id, 1), (ours.id, 1)))
        )
        await send(kafka_zk, topic, 100)
        await until(lambda: all_of(numbers(topic, 100), scala, ours))
        await scala.kill()
        await send(kafka_zk, topic, 100, 100)
        await until(lambda: _equal(nodes.owners(), shares(topic, 4, (ours.id, 1))))
        await until(lambda: all_of(numbers(topic, 200), scala, ours))
        assert max(received(ours).values()) == 1


async def test_wildcards_take_topics_that_appear_later(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    group = kafka_zk.group()
    first = await kafka_zk.topic(partitions=2)
    pattern = f"{first}.*"
    scala = await scala_consumers.start(group, {pattern: 1}, pattern="white_list", name="s")
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        member(kafka_zk, group, Whitelist(pattern), "o", streams=2) as ours,
    ):
        members = [Member(scala.consumer_id, {first: 1}), Member(ours.id, {first: 2})]
        expected = by_range(Group(members, {first: range(2)}))
        await until(lambda: _equal(nodes.owners(), expected))
        later = f"{first}-later"
        await kafka_zk.server.admin.create_topic(later, partitions=5)
        both = {first: range(2), later: range(5)}
        members = [
            Member(scala.consumer_id, dict.fromkeys(both, 1)),
            Member(ours.id, dict.fromkeys(both, 2)),
        ]
        await until(lambda: _equal(nodes.owners(), by_range(Group(members, both))))
        await send(kafka_zk, later, 50)
        await until(lambda: all_of(numbers(later, 50), scala, ours))


async def test_partitions_that_are_added_are_divided_too(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=2), kafka_zk.group()
    scala = await scala_consumers.start(group, {topic: 1}, name="s")
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        member(kafka_zk, group, {topic: 1}, "o", auto_offset_reset="largest") as ours,
    ):
        threads = (scala.consumer_id, 1), (ours.id, 1)
        await until(lambda: _equal(nodes.owners(), shares(topic, 2, *threads)))
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka_zk.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_partitions({topic: NewPartitions(6)})
        finally:
            await admin.close()
        await until(lambda: _equal(nodes.owners(), shares(topic, 6, *threads)))
        await send(kafka_zk, topic, 60)
        await until(lambda: all_of(numbers(topic, 60), scala, ours))


async def test_both_stores_have_what_either_side_committed(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=2), kafka_zk.group()
    await send(kafka_zk, topic, 40)
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        options = {"offsets_storage": "kafka", "dual_commit_enabled": True}
        async with member(kafka_zk, group, {topic: 1}, "o", **options) as ours:
            await until(lambda: all_of(numbers(topic, 40), ours))
        assert sum((await nodes.offsets()).values()) == 40
        properties = {"offsets.storage": "kafka", "dual.commit.enabled": "true"}
        scala = await scala_consumers.start(group, {topic: 1}, name="s", properties=properties)
        await send(kafka_zk, topic, 10, 40)
        await until(lambda: all_of(numbers(topic, 50), scala, ours))
        assert set(received(scala)) == set(numbers(topic, 10, 40))
