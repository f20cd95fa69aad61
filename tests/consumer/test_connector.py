"""The classic connector on a fake ZooKeeper and a fake Kafka."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from asyncconsumer.config import ClassicConfig
from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.consumer.connector_listener import RebalanceListener
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConfigError, ConsumerTimeout, StreamsExist
from asyncconsumer.group.zookeeper import registration
from asyncconsumer.group.zookeeper.filters import StreamSubscription
from asyncconsumer.offsets.zookeeper import ZooKeeperOffsets
from asyncconsumer.streams.messages import MessageStream
from asyncconsumer.testing.fake_kafka import FakeCluster, RecordPayload
from asyncconsumer.testing.fake_zookeeper import FakeZooKeeper
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper import requests
from tests.consumer.test_acknowledgement import UNSEEN, Failed, kept, statement
from tests.consumer.test_acknowledgement import until as leave_at
from tests.support.helpers import until

pytestmark = pytest.mark.fast

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
_IDS = "/consumers/g/ids/"


class Fakes:
    """A ZooKeeper, a broker with a topic, and connectors to them."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.zookeeper = FakeZooKeeper(1, randomness=Random(1))

    def connector(
        self, name: str = "m", listener: RebalanceListener | None = None, **options: Any
    ) -> ConsumerConnector:
        loop = asyncio.get_running_loop()
        config = ClassicConfig(
            zookeeper_connect=self.zookeeper.connect,
            bootstrap_servers=self.cluster.bootstrap_servers,
            group_id="g",
            consumer_id=name,
            **{"auto_offset_reset": "smallest", "auto_commit_interval_ms": 1000, **options},
        )
        environment = Environment(
            open_broker=self.cluster.open,
            open_zookeeper=self.zookeeper.open,
            randomness=Random(2),
            clock=loop.time,
        )
        return environment.run(ConsumerConnector, config, listener=listener)

    def committed(self, tp: TopicPartition) -> int | None:
        node = self.zookeeper.tree.nodes.get(f"/consumers/g/offsets/{tp.topic}/{tp.partition}")
        return None if node is None or not node.data else int(node.data)

    def owner(self, tp: TopicPartition) -> str | None:
        node = self.zookeeper.tree.nodes.get(f"/consumers/g/owners/{tp.topic}/{tp.partition}")
        return None if node is None or not node.data else node.data.decode()

    def members(self) -> list[str]:
        return [path[len(_IDS) :] for path in self.zookeeper.tree.nodes if path.startswith(_IDS)]

    def register(self, name: str, topic: str = "t") -> None:
        """Register a member that does nothing."""
        data = registration.write(StreamSubscription({topic: 1}), 0)
        self.create(f"{_IDS}g_{name}", data)

    def create(self, path: str, data: bytes) -> None:
        self.zookeeper.apply(requests.create(path, data, acl=requests.WORLD).request)

    def delete(self, path: str) -> None:
        self.zookeeper.apply(requests.delete(path).request)


@asynccontextmanager
async def fakes(partitions: int = 2) -> AsyncIterator[Fakes]:
    async with FakeCluster(Random(3), brokers=1) as cluster:
        cluster.add_topic("t", partitions)
        yield Fakes(cluster)


async def only(streams: dict[str, list[MessageStream[Any, Any]]]) -> MessageStream[Any, Any]:
    ((stream,),) = streams.values()
    return stream


async def joined(connector: ConsumerConnector) -> Any:
    """Join with one stream and return it."""
    return await only(await connector.create_message_streams({"t": 1}))


@simulated(range(10))
async def test_streams_are_read_and_committed_and_end_with_the_shutdown() -> None:
    async with fakes() as world:
        world.cluster.append("t", 0, 5)
        world.cluster.append("t", 1, 5)
        async with world.connector() as connector:
            streams: Any = await connector.create_message_streams({"t": 2})
            assert world.owner(T0) == "g_m-0"
            assert world.owner(T1) == "g_m-1"
            first, second = streams["t"]
            records = aiter(first)
            reported = [RecordPayload.of((await anext(records)).value).offset for _ in range(5)]
            assert reported == [0, 1, 2, 3, 4]
            assert await connector.commit_offsets() == {T0: 5, T1: 0}
            await anext(aiter(second))
            await connector.shutdown()
            await connector.shutdown()
            assert [record async for record in first] == []
            assert [record async for record in second] == []
        assert (world.committed(T0), world.committed(T1)) == (5, 0)
        assert (world.owner(T0), world.zookeeper.sessions) == (None, [])


@simulated(range(10))
async def test_offsets_of_a_recreated_topic_are_committed() -> None:
    async with fakes(1) as world:
        world.cluster.append("t", 0, 10)
        async with world.connector() as connector:
            stream: Any = await only(await connector.create_message_streams({"t": 1}))
            records = aiter(stream)
            for _ in range(10):
                await anext(records)
            await asyncio.sleep(3)
            assert world.committed(T0) == 9
            world.cluster.recreate_topic("t")
            world.cluster.append("t", 0, 3)
            for _ in range(3):
                assert RecordPayload.of((await anext(records)).value).incarnation == 2
            await asyncio.sleep(3)
            assert world.committed(T0) == 2


@simulated(range(10))
async def test_decoders_create_messages_and_do_not_get_none() -> None:
    async with fakes(1) as world:
        world.cluster.append("t", 0, 1)
        async with world.connector() as connector:
            streams: Any = await connector.create_message_streams(
                {"t": 1}, key_decoder=json.loads, value_decoder=lambda value: value.split(b"/")[0]
            )
            stream = streams["t"][0]
            reported = await anext(stream)
            assert (reported.topic, reported.offset, reported.key, reported.value) == (
                "t",
                0,
                None,
                b"t",
            )
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await anext(stream)
            world.cluster.append("t", 0, 1)
            assert (await anext(stream)).offset == 1  # a cancelled caller can ask again


@simulated(range(10))
async def test_a_stream_can_be_read_after_a_consumer_timeout() -> None:
    for decoder in (None, bytes):
        async with fakes(1) as world, world.connector(consumer_timeout_ms=500) as connector:
            streams: Any = await connector.create_message_streams({"t": 1}, value_decoder=decoder)
            messages = aiter(streams["t"][0])
            for _ in range(2):
                with pytest.raises(ConsumerTimeout, match="500 ms"):
                    await anext(messages)
            world.cluster.append("t", 0, 1)
            assert (await anext(messages)).offset == 0


@simulated(range(10))
async def test_records_fetched_ahead_are_redelivered_after_clear() -> None:
    async with fakes(1) as world:
        world.cluster.append("t", 0, 5)
        async with world.connector() as connector:
            stream: Any = await only(await connector.create_message_streams({"t": 1}))
            records = aiter(stream)
            for _ in range(3):
                await anext(records)
            stream.clear()
            assert (await anext(records)).offset == 2  # it was delivered, and not finished


@pytest.mark.parametrize("read", [statement, *UNSEEN], ids=lambda read: read.__name__)
@pytest.mark.parametrize("decoder", [None, bytes], ids=["raw", "messages"])
@pytest.mark.parametrize("fail", [False, True], ids=["break", "error"])
@simulated([1])
async def test_streams_have_the_acknowledgement_rule_of_consumers(
    read: Any, decoder: Any, *, fail: bool
) -> None:
    async with fakes(1) as world:
        world.cluster.append("t", 0, 6)
        async with world.connector() as connector:
            made = connector.create_message_streams({"t": 1}, value_decoder=decoder)
            stream: Any = await only(await made)
            seen: list[int] = []
            with suppress(Failed):
                await read(stream, leave_at(2, seen, fail))
            await asyncio.sleep(3)
            known = read in (statement, kept) and not fail  # both end with a statement
            assert world.committed(T0) == (3 if known else 2)
            with suppress(Failed):
                await read(stream, leave_at(5, seen, fail))
            assert seen == [0, 1, 2, *([] if known else [2]), 3, 4, 5]


@simulated(range(10))
async def test_a_stream_without_partitions_ends_with_the_shutdown() -> None:
    async with fakes(1) as world, world.connector() as connector:
        streams: Any = await connector.create_message_streams({"t": 2, "missing": 1})
        async with asyncio.TaskGroup() as group:
            for stream in (*streams["t"], *streams["missing"]):

                async def read(stream: MessageStream[Any, Any] = stream) -> None:
                    assert [record async for record in stream] == []

                group.create_task(read())
            await asyncio.sleep(5)
            await connector.shutdown()


@simulated(range(3))
async def test_streams_are_created_once_and_their_numbers_are_checked() -> None:
    async with fakes(1) as world, world.connector() as connector:
        with pytest.raises(ConfigError, match="needs a topic"):
            await connector.create_message_streams({})
        with pytest.raises(ConfigError, match="streams of topic 't' must be 1 or more"):
            await connector.create_message_streams({"t": 0})
        await connector.create_message_streams({"t": 1})
        with pytest.raises(StreamsExist):
            await connector.create_message_streams({"t": 1})
        assert connector.consumer_id == "g_m"


def test_options_and_a_config_together_are_refused() -> None:
    config = ClassicConfig(zookeeper_connect="zk", group_id="g")
    with pytest.raises(ConfigError, match="cannot be combined"):
        ConsumerConnector(config, group_id="h")
    named = ConsumerConnector.from_properties({"zookeeper.connect": "zk", "group.id": "h"})
    assert named.config.group_id == "h"


@simulated(range(5))
async def test_a_stalled_partition_is_reported_with_the_reason() -> None:
    async with fakes(1) as world:
        world.cluster.append("t", 0, 3)
        async with world.connector(stall_timeout_ms=2000) as connector:
            await connector.create_message_streams({"t": 1})
            event = await anext(connector.events())  # no task reads the stream
            assert "is not read" in str(event)
            assert connector.stalled().keys() == {T0}
            assert connector.counts["stalled"] == 1
            assert connector.progress()[T0].high_watermark == 3


@simulated(range(5))
async def test_a_member_that_loads_offsets_releases_partitions_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The member reads its partitions after their offsets are loaded."""
    event, load = asyncio.Event(), ZooKeeperOffsets.load

    async def load_later(self: Any, partitions: Any) -> Any:
        await event.wait()
        return await load(self, partitions)

    monkeypatch.setattr(ZooKeeperOffsets, "load", load_later)
    async with fakes() as world, world.connector() as connector, asyncio.TaskGroup() as group:
        world.cluster.append("t", 0, 5)
        joining = group.create_task(joined(connector))
        await until(lambda: world.owner(T1) is not None)
        world.register("other")
        await until(lambda: world.owner(T1) is None)
        assert world.owner(T0) is not None
        event.set()
        stream = await joining
        assert [(await anext(stream)).offset for _ in range(5)] == list(range(5))
