"""Faults of real brokers: each acknowledged record is delivered once and in order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncconsumer.testing.handles import KafkaCluster
from asyncconsumer.testing.proxy import TcpProxy
from tests.support.helpers import until
from tests.support.real_fetch import Load, open_engine

PARTITIONS = 6


@asynccontextmanager
async def load(cluster: KafkaCluster, servers: str) -> AsyncIterator[Load]:
    """Write a topic directly to the brokers, and read it through `servers`."""
    topic = await cluster.topic(partitions=PARTITIONS, config={"min.insync.replicas": "2"})
    async with open_engine(servers, stall_timeout_ms=2000) as engine:
        async with Load(engine, cluster.bootstrap_servers, topic, PARTITIONS) as running:
            yield running
        await until(lambda: not engine.manager.stalled())


async def test_no_record_is_lost_while_a_leader_is_killed_and_restarted(
    kafka_cluster: KafkaCluster,
) -> None:
    async with load(kafka_cluster, kafka_cluster.bootstrap_servers) as running:
        leader = await kafka_cluster.leader(running.topic)
        await leader.kill()
        await running.wait_progress()
        await leader.start()
        await running.wait_progress()


async def test_no_record_is_lost_while_a_leader_is_frozen_and_replaced(
    kafka_cluster: KafkaCluster,
) -> None:
    async with load(kafka_cluster, kafka_cluster.bootstrap_servers) as running:
        leader = await kafka_cluster.leader(running.topic)
        leader.pause()
        await running.wait_progress()
        await running.wait_progress(100)
        leader.resume()
        await kafka_cluster.server.wait_until_whole()
        await running.wait_progress()


async def test_no_record_is_lost_while_all_brokers_are_restarted(
    kafka_cluster: KafkaCluster,
) -> None:
    async with load(kafka_cluster, kafka_cluster.bootstrap_servers) as running:
        for broker in kafka_cluster.brokers.values():
            await broker.restart()
            await kafka_cluster.server.wait_until_whole()
            await running.wait_progress()


async def test_partitions_of_an_unreachable_broker_stall_and_recover(
    kafka_cluster: KafkaCluster,
) -> None:
    async with load(kafka_cluster, kafka_cluster.proxied_servers) as running:
        leader = await kafka_cluster.leader(running.topic)
        led = [tp for tp in running.partitions if await kafka_cluster.leader(*tp) is leader]
        proxy = kafka_cluster.proxies[leader.node_id]
        proxy.black_hole()
        await until(lambda: set(led) <= running.engine.manager.stalled().keys())
        await running.wait_progress(without=led)
        proxy.heal()
        await running.wait_progress()


async def test_no_record_is_lost_while_connections_are_reset(kafka_cluster: KafkaCluster) -> None:
    async with load(kafka_cluster, kafka_cluster.proxied_servers) as running:
        for _ in range(5):
            for proxy in kafka_cluster.proxies.values():
                proxy.reset()
            await running.wait_progress(5)


async def test_no_record_is_lost_while_responses_are_truncated(kafka_cluster: KafkaCluster) -> None:
    async with load(kafka_cluster, kafka_cluster.proxied_servers) as running:
        for after in (3000, 300, 30):
            for proxy in kafka_cluster.proxies.values():
                proxy.truncate(after=after, reset=True)
            for proxy in kafka_cluster.proxies.values():
                await another_connection(proxy)
        for proxy in kafka_cluster.proxies.values():
            proxy.heal()
        await running.wait_progress()


async def another_connection(proxy: TcpProxy) -> None:
    before = proxy.statistics().accepted
    await proxy.wait_until(lambda now: now.accepted > before)
