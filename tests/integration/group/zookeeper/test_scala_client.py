"""Members of asyncconsumer and of the Scala consumer in one group."""

from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.new_partitions import NewPartitions

from asyncconsumer.group.zookeeper.assignors import (
    GroupInfo,
    GroupMemberInfo,
    by_range,
    round_robin,
)
from asyncconsumer.group.zookeeper.filters import Blacklist, Whitelist
from asyncconsumer.testing.handles import KafkaWithZooKeeper
from asyncconsumer.testing.servers import ScalaConsole, ScalaConsumers
from asyncconsumer.types import TopicPartition
from tests.support.connector_members import (
    OwnMember,
    all_of,
    equal,
    expected_owners,
    numbers,
    open_member,
    received,
    send,
    sending,
)
from tests.support.connector_process import OwnConsumer
from tests.support.helpers import until
from tests.support.zookeeper_nodes import OffsetWatcher, nodes_of

SHORT_SESSION = {"zookeeper.session.timeout.ms": "3000"}


@pytest.mark.parametrize(("strategy", "rule"), [("range", by_range), ("roundrobin", round_robin)])
async def test_assignments_are_those_of_two_scala_members(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers, strategy: str, rule: Any
) -> None:
    topic, group = await kafka_zk.topic(partitions=8), kafka_zk.group()
    await send(kafka_zk, topic, 80)
    properties = {"partition.assignment.strategy": strategy}
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        scala = await scala_consumers.start(group, {topic: 2}, name="s", properties=properties)
        await scala.until_received(80)
        same_strategy: Any = {"partition_assignment_strategy": strategy}
        async with open_member(kafka_zk, group, {topic: 3}, "o", **same_strategy) as tested:
            expected = expected_owners(
                topic, 8, (scala.consumer_id, 2), (tested.id, 3), strategy=rule
            )
            await until(lambda: equal(nodes.owners(), expected))
            await send(kafka_zk, topic, 80, 80)
            await until(lambda: all_of(numbers(topic, 160), scala, tested))
        # after this member left, the other one continues at its committed offsets
        everything = [TopicPartition(topic, n) for n in range(8)]
        await scala.until_owning(everything)
        await send(kafka_zk, topic, 80, 160)
        await until(lambda: all_of(numbers(topic, 240), scala, tested))
        assert max(received(tested).values()) == 1
        assert not set(received(tested)) & set(numbers(topic, 80, 160))


async def test_a_killed_scala_member_is_replaced_and_nothing_is_lost(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    scala = await scala_consumers.start(group, {topic: 1}, name="s")
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        open_member(kafka_zk, group, {topic: 1}, "o") as tested,
    ):
        await until(
            lambda: equal(
                nodes.owners(), expected_owners(topic, 4, (scala.consumer_id, 1), (tested.id, 1))
            )
        )
        await send(kafka_zk, topic, 100)
        await until(lambda: all_of(numbers(topic, 100), scala, tested))
        await scala.kill()
        await send(kafka_zk, topic, 100, 100)
        await until(lambda: equal(nodes.owners(), expected_owners(topic, 4, (tested.id, 1))))
        await until(lambda: all_of(numbers(topic, 200), scala, tested))
        assert max(received(tested).values()) == 1


async def test_a_white_list_assigns_topics_that_are_created_later(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    group = kafka_zk.group()
    first = await kafka_zk.topic(partitions=2)
    pattern = f"{first}.*"
    scala = await scala_consumers.start(group, {pattern: 1}, pattern="white_list", name="s")
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        open_member(kafka_zk, group, Whitelist(pattern), "o", streams=2) as tested,
    ):
        members = [
            GroupMemberInfo(scala.consumer_id, {first: 1}),
            GroupMemberInfo(tested.id, {first: 2}),
        ]
        expected = by_range(GroupInfo(members, {first: range(2)}))
        await until(lambda: equal(nodes.owners(), expected))
        later = f"{first}-later"
        await kafka_zk.server.admin.create_topic(later, partitions=5)
        both = {first: range(2), later: range(5)}
        members = [
            GroupMemberInfo(scala.consumer_id, dict.fromkeys(both, 1)),
            GroupMemberInfo(tested.id, dict.fromkeys(both, 2)),
        ]
        await until(lambda: equal(nodes.owners(), by_range(GroupInfo(members, both))))
        await send(kafka_zk, later, 50)
        await until(lambda: all_of(numbers(later, 50), scala, tested))


async def test_added_partitions_are_divided(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=2), kafka_zk.group()
    scala = await scala_consumers.start(group, {topic: 1}, name="s")
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        open_member(kafka_zk, group, {topic: 1}, "o", auto_offset_reset="largest") as tested,
    ):
        threads = (scala.consumer_id, 1), (tested.id, 1)
        await until(lambda: equal(nodes.owners(), expected_owners(topic, 2, *threads)))
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka_zk.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_partitions({topic: NewPartitions(6)})
        finally:
            await admin.close()
        await until(lambda: equal(nodes.owners(), expected_owners(topic, 6, *threads)))
        await send(kafka_zk, topic, 60)
        await until(lambda: all_of(numbers(topic, 60), scala, tested))


async def test_a_scala_member_continues_at_offsets_of_a_dual_commit(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=2), kafka_zk.group()
    await send(kafka_zk, topic, 40)
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        options: Any = {"offsets_storage": "kafka", "dual_commit_enabled": True}
        async with open_member(kafka_zk, group, {topic: 1}, "o", **options) as tested:
            await until(lambda: all_of(numbers(topic, 40), tested))
        assert sum((await nodes.offsets()).values()) == 40
        properties = {"offsets.storage": "kafka", "dual.commit.enabled": "true"}
        scala = await scala_consumers.start(group, {topic: 1}, name="s", properties=properties)
        await send(kafka_zk, topic, 10, 40)
        await until(lambda: all_of(numbers(topic, 50), scala, tested))
        assert set(received(scala)) == set(numbers(topic, 10, 40))


async def test_both_members_share_several_streams_of_several_topics(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    group = kafka_zk.group()
    wide, narrow = await kafka_zk.topic(partitions=7), await kafka_zk.topic(partitions=3)
    scala_streams = {wide: 2, narrow: 1}
    own_streams = {wide: 3, narrow: 2}
    scala = await scala_consumers.start(group, scala_streams, name="s")
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        open_member(kafka_zk, group, own_streams, "o") as tested,
    ):
        members = [
            GroupMemberInfo(scala.consumer_id, scala_streams),
            GroupMemberInfo(tested.id, own_streams),
        ]
        expected = by_range(GroupInfo(members, {wide: range(7), narrow: range(3)}))
        await until(lambda: equal(nodes.owners(), expected))
        for topic in scala_streams:
            await send(kafka_zk, topic, 70)
        sent = [*numbers(wide, 70), *numbers(narrow, 70)]
        await until(lambda: all_of(sent, scala, tested))
        assert received(tested)
        assert received(scala)
        assert max(received(tested, scala).values()) == 1


async def test_both_members_read_the_topics_that_a_black_list_leaves(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    group = kafka_zk.group()
    left_out, read = await kafka_zk.topic(partitions=2), await kafka_zk.topic(partitions=4)
    pattern = f"(?!{read}).*"  # all topics of all tests but one
    scala = await scala_consumers.start(group, {pattern: 1}, pattern="black_list", name="s")
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        open_member(kafka_zk, group, Blacklist(pattern), "o") as tested,
    ):
        await until(
            lambda: equal(
                nodes.owners(), expected_owners(read, 4, (scala.consumer_id, 1), (tested.id, 1))
            )
        )
        await send(kafka_zk, left_out, 10)
        await send(kafka_zk, read, 40)
        await until(lambda: all_of(numbers(read, 40), scala, tested))
        assert set(received(scala, tested)) == set(numbers(read, 40))
        assert received(scala)
        assert received(tested)


async def test_a_console_consumer_shares_partitions_of_a_topic(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        async with open_member(kafka_zk, group, {topic: 1}, "o") as tested:
            await send(kafka_zk, topic, 20)
            await until(lambda: all_of(numbers(topic, 20), tested))
            console = await scala_consumers.start_console(group, topic)
            both = (console.consumer_id, 1), (tested.id, 1)
            await until(lambda: equal(nodes.owners(), expected_owners(topic, 4, *both)))
            await send(kafka_zk, topic, 40, 20)
            await until(lambda: _with_console(console, tested) >= set(numbers(topic, 60)))
            assert console.values
        await send(kafka_zk, topic, 40, 60)
        await until(lambda: _with_console(console, tested) >= set(numbers(topic, 100)))
        assert max(received(tested).values()) == 1
        assert not set(received(tested)) & {value.encode() for value in console.values}


def _with_console(console: ScalaConsole, tested: OwnMember) -> set[bytes]:
    return set(received(tested)) | {value.encode() for value in console.values}


async def test_a_scala_member_replaces_a_killed_member_of_this_client(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    scala = await scala_consumers.start(group, {topic: 1}, name="s")
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        OwnConsumer(
            kafka_zk.zookeeper_connect, group, {topic: 1}, name="o", properties=SHORT_SESSION
        ) as tested,
    ):
        both = (scala.consumer_id, 1), (tested.consumer_id, 1)
        await until(lambda: equal(nodes.owners(), expected_owners(topic, 4, *both)))
        await send(kafka_zk, topic, 100)
        await until(lambda: all_of(numbers(topic, 100), scala, tested))
        await tested.kill()
        await send(kafka_zk, topic, 100, 100)
        await scala.until_owning([TopicPartition(topic, n) for n in range(4)])
        await until(lambda: all_of(numbers(topic, 200), scala, tested))
        assert max(received(tested).values()) == 1


def delivered_ms(consumer: OwnConsumer, tp: TopicPartition) -> list[int]:
    return [record.at_ms for record in consumer.records if (record.topic, record.partition) == tp]


async def test_a_frozen_member_delivers_and_commits_no_lost_partition(
    kafka_zk: KafkaWithZooKeeper, scala_consumers: ScalaConsumers
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    scala = await scala_consumers.start(group, {topic: 1}, name="s")
    tested = OwnConsumer(
        kafka_zk.zookeeper_connect, group, {topic: 1}, name="o", properties=SHORT_SESSION
    )
    tested.pause = 0.01  # so that fetched records are always buffered
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes, tested:
        both = expected_owners(topic, 4, (scala.consumer_id, 1), (tested.consumer_id, 1))
        mine = [member for member, name in both.items() if name.startswith(tested.consumer_id)]
        await until(lambda: equal(nodes.owners(), both))
        async with sending(kafka_zk, topic) as sent, OffsetWatcher(nodes) as watcher:
            await until(lambda: len(tested.records) > 100)
            tested.freeze()
            await scala.until_owning([TopicPartition(topic, n) for n in range(4)])
            taken_ms = await nodes.claimed_ms()
            ahead = len(scala.records) + 100
            await until(lambda: len(scala.records) > ahead)
            tested.thaw()
            await until(lambda: equal(nodes.owners(), both))
            regained_ms = await nodes.claimed_ms()
            # Records must be sent until the member has read from its partitions again.
            await until(
                lambda: all(
                    delivered_ms(tested, member)[-1] >= regained_ms[member] for member in mine
                )
            )
        await until(lambda: all_of(sent, scala, tested))
        assert not watcher.steps_back
        for member in mine:
            times = delivered_ms(tested, member)
            assert min(times) < taken_ms[member]
            assert not [time for time in times if taken_ms[member] <= time < regained_ms[member]]
