"""Connectors that are closed at any moment, and the nodes that remain in ZooKeeper."""

import asyncio
from collections.abc import Collection, Mapping
from random import Random
from typing import Any

import pytest

from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.consumer.connector_listener import RebalanceListener
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ClosedError, ListenerFailed
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_zookeeper import FakeZooKeeper, Fate
from asyncconsumer.testing.virtual_time import run, simulated
from asyncconsumer.types import TopicPartition

TOPIC, PARTITIONS = "t", 6


def connector_on(
    cluster: FakeCluster, zookeeper: FakeZooKeeper, name: str, seed: int, **options: Any
) -> ConsumerConnector:
    loop = asyncio.get_running_loop()
    environment = Environment(
        open_broker=cluster.open,
        open_zookeeper=zookeeper.open,
        randomness=Random(seed),
        clock=loop.time,
    )
    return environment.run(
        ConsumerConnector,
        zookeeper_connect=zookeeper.connect,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        consumer_id=name,
        **options,
    )


def nodes_of_member(zookeeper: FakeZooKeeper, name: str) -> list[str]:
    """Return the registrations and claims of a member."""
    return [
        path
        for path, node in zookeeper.tree.nodes.items()
        if path.endswith(f"/g_{name}") or (node.data or b"").startswith(f"g_{name}-".encode())
    ]


async def joined_for(connector: ConsumerConnector, seconds: float) -> None:
    """Join, and shut down after `seconds`, at any step of the join."""

    async def join() -> None:
        try:
            await connector.create_message_streams({TOPIC: 1})
        except ClosedError:
            return  # the shutdown came before the streams

    async with asyncio.TaskGroup() as group:
        group.create_task(join())
        await asyncio.sleep(seconds)
        await connector.shutdown()


async def join_and_leave(seed: int, *, unreliable: bool) -> None:
    chance = Random(seed)
    zookeeper = FakeZooKeeper(randomness=Random(seed))
    async with FakeCluster(Random(seed), brokers=1) as cluster:
        cluster.add_topic(TOPIC, PARTITIONS)
        async with connector_on(cluster, zookeeper, "b", seed) as staying:
            await staying.create_message_streams({TOPIC: 1})
            if unreliable:
                fates = [*[Fate.DONE] * 6, Fate.LOST_BEFORE, Fate.LOST_AFTER]
                zookeeper.on_write = lambda session_id, request: chance.choice(fates)
            async with connector_on(cluster, zookeeper, "a", seed + 1) as leaving:
                await joined_for(leaving, chance.uniform(0, 0.04))
                assert nodes_of_member(zookeeper, "a") == []
                async with asyncio.timeout(30):
                    while len(nodes_of_member(zookeeper, "b")) < 1 + PARTITIONS:
                        await asyncio.sleep(0.1)


@pytest.mark.parametrize("unreliable", [False, True], ids=["calm", "unreliable"])
def test_a_shutdown_at_any_moment_leaves_no_registration_or_claim(unreliable: bool) -> None:
    for seed in range(60):
        try:
            run(join_and_leave(seed, unreliable=unreliable), seed=seed, limit=1000)
        except BaseException as error:
            error.add_note(f"This was seed {seed}.")
            raise


class FailsAtTheStart(RebalanceListener):
    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        raise RuntimeError("no such file")


class FailsAtTheEnd(RebalanceListener):
    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        raise RuntimeError("no such file")


async def read_to_the_end(connector: ConsumerConnector) -> None:
    streams = await connector.create_message_streams(
        {TOPIC: 1}, key_decoder=bytes, value_decoder=bytes
    )
    async for _ in streams[TOPIC][0]:
        pass


@simulated(range(10))
async def test_a_listener_error_is_raised_where_streams_are_created_or_read() -> None:
    zookeeper = FakeZooKeeper(randomness=Random(1))
    async with FakeCluster(Random(2), brokers=1) as cluster:
        cluster.add_topic(TOPIC, PARTITIONS)
        listener: Any = {"listener": FailsAtTheStart()}
        with pytest.raises(ListenerFailed, match=r"before_starting: .*no such file"):
            async with connector_on(cluster, zookeeper, "a", 1, **listener) as connector:
                await connector.create_message_streams({TOPIC: 1})
        assert nodes_of_member(zookeeper, "a") == []

        listener = {"listener": FailsAtTheEnd()}
        async with asyncio.TaskGroup() as group:

            async def fail_at_the_end() -> None:
                with pytest.raises(ListenerFailed, match="no such file"):
                    async with connector_on(cluster, zookeeper, "a", 1, **listener) as connector:
                        await read_to_the_end(connector)

            failing = group.create_task(fail_at_the_end())
            await asyncio.sleep(1)
            began = asyncio.get_running_loop().time()
            async with connector_on(cluster, zookeeper, "b", 2) as other:
                await other.create_message_streams({TOPIC: 1})
                await asyncio.wait([failing])
                assert asyncio.get_running_loop().time() < began + 1, (
                    "the failed listener must not delay the other member"
                )
                async with asyncio.timeout(30):
                    while len(nodes_of_member(zookeeper, "b")) < 1 + PARTITIONS:
                        await asyncio.sleep(0.1)
        assert nodes_of_member(zookeeper, "a") == []


@simulated(range(10))
async def test_a_failed_listener_does_not_prevent_the_leave() -> None:
    zookeeper = FakeZooKeeper(randomness=Random(1))
    async with FakeCluster(Random(2), brokers=1) as cluster:
        cluster.add_topic(TOPIC, PARTITIONS)
        listener: Any = {"listener": FailsAtTheEnd()}
        async with connector_on(cluster, zookeeper, "a", 1, **listener) as connector:
            await connector.create_message_streams({TOPIC: 1})
            assert len(nodes_of_member(zookeeper, "a")) == 1 + PARTITIONS
            await connector.shutdown()
            assert nodes_of_member(zookeeper, "a") == []
