"""The classic connector on real servers: records, commits and listeners."""

import asyncio
import json
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.consumer.connector_listener import RebalanceListener
from asyncconsumer.errors import (
    ConsumerRebalanceFailed,
    ConsumerTimeout,
    MemberExists,
    StreamsExist,
)
from asyncconsumer.group.zookeeper.filters import Whitelist
from asyncconsumer.streams.messages import MessageStream
from asyncconsumer.testing.handles import KafkaWithZooKeeper
from asyncconsumer.types import TopicPartition
from tests.support.connector_members import (
    all_of,
    connector_of,
    equal,
    expected_owners,
    numbers,
    open_member,
    send,
)
from tests.support.helpers import until
from tests.support.zookeeper_nodes import GroupNodes, nodes_of


async def one_stream(connector: ConsumerConnector, topic: str) -> MessageStream[bytes, bytes]:
    streams: dict[str, list[MessageStream[bytes, bytes]]]
    streams = await connector.create_message_streams({topic: 1})
    return streams[topic][0]


async def take(stream: MessageStream[Any, Any], count: int) -> list[Any]:
    """Return the next values. The last one is not acknowledged."""
    async with asyncio.timeout(60):
        return [(await anext(stream)).value for _ in range(count)]


# --- other members of the group ------------------------------------------------------------------


async def test_an_invalid_member_registration_is_logged_and_ignored(
    kafka_zk: KafkaWithZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = await kafka_zk.topic(partitions=2), kafka_zk.group()
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        async with open_member(kafka_zk, group, {topic: 1}, "a") as tested:
            await nodes.client.create(f"/consumers/{group}/ids/{group}_bad", b'{"pattern":')
            await until(lambda: f"{group}_bad" in caplog.text)
            async with open_member(kafka_zk, group, {topic: 1}, "b") as other:
                both = expected_owners(topic, 2, (tested.id, 1), (other.id, 1))
                await until(lambda: equal(nodes.owners(), both))
                await send(kafka_zk, topic, 20)
                await until(lambda: all_of(numbers(topic, 20), tested, other))
        assert "a member of group" in caplog.text


async def test_a_consumer_id_that_is_in_use_is_refused(kafka_zk: KafkaWithZooKeeper) -> None:
    topic, group = await kafka_zk.topic(), kafka_zk.group()
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        open_member(kafka_zk, group, {topic: 1}, "same") as first,
    ):
        async with connector_of(kafka_zk, group, "same") as second:
            with pytest.raises(MemberExists, match=f"{group}_same"):
                await second.create_message_streams({topic: 1})
        assert list(await nodes.members()) == [first.id]  # the first member is not affected
        await send(kafka_zk, topic, 5)
        await until(lambda: all_of(numbers(topic, 5), first))


async def test_a_partition_is_claimed_after_its_former_owner_releases_it(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic, group = await kafka_zk.topic(partitions=2), kafka_zk.group()
    await send(kafka_zk, topic, 20)
    where = f"/consumers/{group}/owners/{topic}/0"
    held = {TopicPartition(topic, 0): "somebody-0"}
    few: Any = {"rebalance_max_retries": 2, "rebalance_backoff_ms": 200}
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        connector_of(kafka_zk, group, "o", **few) as connector,
    ):
        await nodes.client.ensure_path(where.rpartition("/")[0])
        await nodes.client.create(where, b"somebody-0")
        stream = await one_stream(connector, topic)
        for _ in range(2):  # the connector retries, and reports again
            with pytest.raises(ConsumerRebalanceFailed, match="another member owns"):
                await take(stream, 1)
            await until(
                lambda: equal(nodes.owners(), held)
            )  # it claims the whole assignment or nothing
        await nodes.client.delete(where)
        got: set[bytes] = set()
        while len(got) < 20:
            try:
                got.update(await take(stream, 1))
            except ConsumerRebalanceFailed:
                continue  # reported before the partition was free
        assert got == set(numbers(topic, 20))


# --- streams -------------------------------------------------------------------------------------


async def test_streams_without_topics_end_when_the_connector_shuts_down(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    group = kafka_zk.group()
    async with connector_of(kafka_zk, group, "o") as connector:
        streams: list[MessageStream[bytes, bytes]]
        streams = await connector.create_message_streams_by_filter(Whitelist(f"{group}.*"), 2)
        with pytest.raises(StreamsExist):
            await connector.create_message_streams({"t": 1})
        async with asyncio.timeout(60), asyncio.TaskGroup() as readers:
            ends = [readers.create_task(take_all(stream)) for stream in streams]
            await asyncio.sleep(0)
            await connector.shutdown()
        assert [end.result() for end in ends] == [[], []]
        await connector.shutdown()  # harmless


async def take_all(stream: MessageStream[Any, Any]) -> list[Any]:
    return [record.value async for record in stream]


async def test_a_stream_can_be_read_after_consumer_timeout(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic = await kafka_zk.topic()
    async with connector_of(kafka_zk, kafka_zk.group(), "o", consumer_timeout_ms=300) as connector:
        stream = await one_stream(connector, topic)
        for start in (0, 5):
            with pytest.raises(ConsumerTimeout):
                await take(stream, 1)
            await send(kafka_zk, topic, 5, start)
            assert await take(stream, 5) == numbers(topic, 5, start)


async def test_decoders_are_not_called_for_missing_keys_and_values(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic = await kafka_zk.topic()
    async with AIOKafkaProducer(bootstrap_servers=kafka_zk.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b'{"n": 1}', key=b"7")
        await producer.send_and_wait(topic, None, key=b"8")
        await producer.send_and_wait(topic, b"[2]")
    async with connector_of(kafka_zk, kafka_zk.group(), "o") as connector:
        streams: dict[str, list[MessageStream[int, Any]]] = await connector.create_message_streams(
            {topic: 1}, key_decoder=int, value_decoder=json.loads
        )
        results = []
        async for message in streams[topic][0]:
            results.append((message.offset, message.key, message.value))
            assert (message.topic, message.partition) == (topic, 0)
            assert message.timestamp == message.record.timestamp > 0
            if len(results) == 3:
                break
    assert results == [(0, 7, {"n": 1}), (1, 8, None), (2, None, [2])]


async def test_a_cleared_stream_redelivers_the_record_in_flight(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic = await kafka_zk.topic()
    await send(kafka_zk, topic, 10)
    async with connector_of(kafka_zk, kafka_zk.group(), "o") as connector:
        stream = await one_stream(connector, topic)
        assert await take(stream, 4) == numbers(topic, 4)
        stream.clear()  # the fourth was in flight, not acknowledged
        assert await take(stream, 7) == numbers(topic, 7, 3)


# --- commits -------------------------------------------------------------------------------------


async def test_explicit_offsets_are_committed_only_for_owned_partitions(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic, group = await kafka_zk.topic(), kafka_zk.group()
    await send(kafka_zk, topic, 10)
    tested, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    manual: Any = {"auto_commit_enable": False}
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        async with connector_of(kafka_zk, group, "o", **manual) as connector:
            assert await connector.commit_offsets() == {}
            stream = await one_stream(connector, topic)
            await take(stream, 8)
            assert await connector.commit_offsets() == {tested: 8}
            assert await nodes.offsets() == {tested: 8}
            assert await connector.commit_offsets({tested: 3, other: 5}) == {tested: 3}
        assert await nodes.offsets() == {tested: 3}, "closing commits nothing without auto-commit"
        async with connector_of(kafka_zk, group, "o", **manual) as connector:
            stream = await one_stream(connector, topic)
            assert await take(stream, 7) == numbers(topic, 7, 3)


async def test_only_changed_offsets_are_written(kafka_zk: KafkaWithZooKeeper) -> None:
    topic, group = await kafka_zk.topic(partitions=2), kafka_zk.group()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    servers = kafka_zk.bootstrap_servers
    async with (
        nodes_of(kafka_zk.zookeeper_connect, group) as nodes,
        AIOKafkaProducer(bootstrap_servers=servers) as producer,
    ):
        often: Any = {"auto_commit_interval_ms": 20}
        async with open_member(kafka_zk, group, {topic: 1}, "o", **often):
            await until(partial(_equal_offsets, nodes, {first: 0, second: 0}))  # the start offsets
            for n in range(1, 6):
                await producer.send_and_wait(topic, b"%d" % n, partition=0)
                await until(partial(_equal_offsets, nodes, {first: n, second: 0}))
            await producer.send_and_wait(topic, b"b", partition=1)
            await until(partial(_equal_offsets, nodes, {first: 5, second: 1}))
        once_each = {first: 5, second: 1}
        assert await nodes.commits() == once_each, "no value is written twice"
        async with open_member(kafka_zk, group, {topic: 1}, "o", **often) as tested:
            await tested.connector.commit_offsets({first: 5, second: 1})
        assert await nodes.commits() == once_each, "loaded offsets are not written again"


async def _equal_offsets(nodes: GroupNodes, expected: dict[TopicPartition, int]) -> bool:
    return await nodes.offsets() == expected


# --- listeners -----------------------------------------------------------------------------------


class Diary(RebalanceListener):
    """A listener that records its calls with the state of ZooKeeper at that time."""

    def __init__(self, nodes: GroupNodes) -> None:
        self.lines: list[tuple[str, set[int]]] = []
        self.owners: list[dict[TopicPartition, str]] = []
        self.offsets: list[dict[TopicPartition, int]] = []
        self._nodes = nodes

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        await self._write("releasing", partitions)

    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        mine = {tp for tp, name in owners.items() if name.startswith(f"{consumer_id}-")}
        await self._write("starting", mine)

    async def partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self._write("lost", partitions)

    async def _write(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.owners.append(await self._nodes.owners())
        self.offsets.append(await self._nodes.offsets())
        self.lines.append((what, {tp.partition for tp in partitions}))  # after the state was read


async def test_listeners_are_called_in_order_with_commits_before_release(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    topic, group = await kafka_zk.topic(partitions=4), kafka_zk.group()
    async with nodes_of(kafka_zk.zookeeper_connect, group) as nodes:
        diary = Diary(nodes)
        seldom: Any = {"auto_commit_interval_ms": 60_000, "listener": diary}
        async with open_member(kafka_zk, group, {topic: 1}, "a", **seldom) as tested:
            await send(kafka_zk, topic, 20)
            await until(lambda: all_of(numbers(topic, 20), tested))
            async with open_member(kafka_zk, group, {topic: 1}, "b") as other:
                both = expected_owners(topic, 4, (tested.id, 1), (other.id, 1))
                await until(lambda: equal(nodes.owners(), both))
            await until(lambda: len(diary.lines) == 3)
            session = tested.connector._group.session
            await kafka_zk.zookeeper.expire_session(session.session_id, session.password)
            await until(lambda: len(diary.lines) == 5)
            everything = expected_owners(topic, 4, (tested.id, 1))
            await until(lambda: equal(nodes.owners(), everything))
            await send(kafka_zk, topic, 20, 20)
            await until(lambda: all_of(numbers(topic, 40), tested))
    everyone = {0, 1, 2, 3}
    assert diary.lines == [
        ("starting", everyone),
        ("releasing", {2, 3}),
        ("starting", everyone),
        ("lost", everyone),
        ("starting", everyone),
        ("releasing", everyone),
    ]
    # partitions are owned before fetching starts, and until they are released
    assert [len(owned) for owned in diary.owners] == [4, 4, 4, 0, 4, 4]
    # and their offsets are committed by then, without waiting for the auto-commit
    assert set(diary.offsets[1]) >= {TopicPartition(topic, 2), TopicPartition(topic, 3)}
