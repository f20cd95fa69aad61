"""Brokers that ZooKeeper lists, at the start and after all addresses changed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.consumer.connector import ConsumerConnector
from asyncconsumer.environment import Environment
from asyncconsumer.errors import HostNotAllowed
from asyncconsumer.streams.messages import MessageStream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.complete import CompleteCluster
from asyncconsumer.testing.fake_zookeeper import FakeZooKeeper
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.zookeeper import paths
from asyncconsumer.zookeeper.recipes import ensure_path
from asyncconsumer.zookeeper.session import ZooKeeperSession


class Controller:
    """A controller that registers the brokers and topics of a cluster in ZooKeeper."""

    def __init__(self, cluster: FakeCluster, session: ZooKeeperSession) -> None:
        self._cluster = cluster
        self._session = session

    async def register(self) -> None:
        await ensure_path(self._session, paths.BROKER_IDS)
        for node in self._cluster.brokers:
            await self._register(node)

    async def _register(self, node: int) -> None:
        host, port = self._cluster.brokers[node].endpoint.address
        where = {"endpoints": [f"PLAINTEXT://{host}:{port}"], "version": 5}
        await self._session.create(paths.broker(node), json.dumps(where).encode(), ephemeral=True)

    async def add_topic(self, name: str, partitions: int) -> None:
        self._cluster.add_topic(name, partitions)
        await ensure_path(self._session, paths.TOPICS)
        described = {"partitions": {str(n): [1] for n in range(partitions)}, "version": 3}
        await self._session.create(paths.topic(name), json.dumps(described).encode())

    async def restart_all_elsewhere(self) -> None:
        """Restart all brokers on new addresses."""
        for node in self._cluster.brokers:
            self._cluster.change_address(node)
            await self._session.delete(paths.broker(node))
        for node in self._cluster.brokers:
            await self._register(node)


@asynccontextmanager
async def world() -> AsyncIterator[tuple[CompleteCluster, FakeZooKeeper, Controller, Environment]]:
    zookeeper = FakeZooKeeper(randomness=Random(1))
    loop = asyncio.get_running_loop()
    config = ZooKeeperConfig(zookeeper_connect=zookeeper.connect)
    async with (
        CompleteCluster(Random(2), brokers=3, topic_partitions=None) as cluster,
        ZooKeeperSession(config, randomness=Random(3), opener=zookeeper.open) as session,
    ):
        environment = Environment(
            open_broker=cluster.open,
            open_zookeeper=zookeeper.open,
            randomness=Random(4),
            clock=loop.time,
        )
        yield cluster, zookeeper, Controller(cluster, session), environment


async def read(stream: MessageStream[Any, Any], count: int) -> list[int]:
    async with asyncio.timeout(60):
        return [(await anext(stream)).offset for _ in range(count)]


@simulated(range(10))
async def test_brokers_are_found_after_all_addresses_changed() -> None:
    async with world() as (cluster, zookeeper, controller, environment):
        await controller.register()
        await controller.add_topic("t", 1)
        connector = environment.run(
            ConsumerConnector,
            zookeeper_connect=zookeeper.connect,
            group_id="g",
            auto_offset_reset="smallest",
        )
        async with connector:
            streams: dict[str, list[MessageStream[bytes, bytes]]]
            streams = await connector.create_message_streams({"t": 1})
            for first in (0, 5, 10):
                cluster.append("t", 0, 5)
                assert await read(streams["t"][0], 5) == list(range(first, first + 5))
                await controller.restart_all_elsewhere()


@simulated(range(5))
async def test_a_connector_waits_for_the_first_broker() -> None:
    async with world() as (_, zookeeper, controller, environment), asyncio.TaskGroup() as group:

        async def begin() -> None:
            options: Any = {"zookeeper_connect": zookeeper.connect, "group_id": "g"}
            async with environment.run(ConsumerConnector, **options):
                began.set()

        began = asyncio.Event()
        group.create_task(begin())
        await asyncio.sleep(60)
        assert not began.is_set()
        await controller.register()
        async with asyncio.timeout(1):
            await began.wait()


@simulated(range(3))
@pytest.mark.parametrize("allowed", ["broker-1,broker-2", "elsewhere"])
async def test_connections_to_hosts_that_are_not_allowed_are_refused(allowed: str) -> None:
    async with world() as (cluster, zookeeper, controller, environment):
        await controller.register()
        await controller.add_topic("t", 3)
        connector = environment.run(
            ConsumerConnector,
            zookeeper_connect=zookeeper.connect,
            group_id="g",
            auto_offset_reset="smallest",
            allowed_hosts=allowed,
        )

        async def begin() -> None:
            streams: dict[str, list[MessageStream[bytes, bytes]]]
            async with connector:
                streams = await connector.create_message_streams({"t": 1})
                await read(streams["t"][0], 1)

        with pytest.raises(HostNotAllowed, match="allowed_hosts"):
            await begin()
        for node, broker in cluster.brokers.items():
            assert bool(broker.requests.total()) == (f"broker-{node}" in allowed)
