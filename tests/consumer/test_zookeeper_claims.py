"""A consumer whose partitions are still claimed by another member of a ZooKeeper group."""

import asyncio
from random import Random
from typing import Any

import pytest

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.aio.start_task import start_task
from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.environment import Environment
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_zookeeper import FakeZooKeeper
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.zookeeper.recipes import ensure_path
from asyncconsumer.zookeeper.session import ZooKeeperSession

pytestmark = pytest.mark.fast


@simulated(seeds=range(3))
async def test_wait_assigned_waits_for_pending_claims() -> None:
    async with FakeCluster(Random(1), brokers=1) as cluster:
        cluster.add_topic("t", 1)
        zookeeper = FakeZooKeeper(1, randomness=Random(1))
        environment = Environment(
            open_broker=cluster.open,
            open_zookeeper=zookeeper.open,
            randomness=Random(2),
            clock=asyncio.get_running_loop().time,
        )
        other = ZooKeeperSession(
            ZooKeeperConfig(zookeeper_connect=zookeeper.connect),
            randomness=Random(3),
            opener=zookeeper.open,
        )
        consumer: Consumer[Any, Any] = environment.run(
            Consumer,
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            group_protocol="zookeeper",
            zookeeper_connect=zookeeper.connect,
            auto_offset_reset="earliest",
            rebalance_backoff_ms=100,
        )
        async with other:
            await ensure_path(other, "/consumers/g/owners/t")
            owner = "/consumers/g/owners/t/0"
            await other.create(owner, b"g_other-0", ephemeral=True)
            async with consumer:
                loop = asyncio.get_running_loop()
                waiting = start_task(loop, consumer.wait_assigned())
                await asyncio.sleep(10)
                assert not waiting.done()
                await other.delete(owner)
                assert await waiting == {TopicPartition("t", 0)}
