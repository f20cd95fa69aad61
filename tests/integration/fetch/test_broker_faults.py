"""Faults of real brokers: each acknowledged record once and in order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncconsumer.testing.handles import KafkaCluster
from asyncconsumer.testing.proxy import TcpProxy
from tests.support.helpers import until
from tests.support.real_fetch import Load, open_engine

PARTITIONS = 6


@asynccontextmanager
async def load(cluster: KafkaCluster, servers: str) -> AsyncIterator[Load]:
    """A topic that is written without a proxy between, and read by an engine at `servers`."""
    topic = await cluster.topic(partitions=PARTITIONS, config={"min.insync.replicas": "2"})
    async with open_engine(servers, stall_timeout_ms=2000) as engine:
        async with Load(engine, cluster.bootstrap_servers, topic, PARTITIONS) as running:
            yield running
        await until(lambda: not engine.manager.stalled())


async def test_a_leader_is_killed_and_comes_back(kafka_cluster: KafkaCluster) -> None:
    async with load(kafka_cluster, kafka_cluster.bootstrap_servers) as running:
        leader = await kafka_cluster.leader(running.topic)
        await leader.kill()
        await running.goes_on()
        await leader.start()
        await running.goes_on()


async def test_a_leader_is_frozen_and_thaws_when_others_lead(kafka_cluster: KafkaCluster) -> None:
    async with load(kafka_cluster, kafka_cluster.bootstrap_servers) as running:
        leader = await kafka_cluster.leader(running.topic)
        leader.pause()
        await running.goes_on()
        await running.goes_on(100)
        leader.resume()
        await kafka_cluster.server.wait_until_whole()
        await running.goes_on()


async def test_all_brokers_are_restarted_one_after_the_other(kafka_cluster: KafkaCluster) -> None:
    async with load(kafka_cluster, kafka_cluster.bootstrap_servers) as running:
        for broker in kafka_cluster.brokers.values():
            await broker.restart()
            await kafka_cluster.server.wait_until_whole()
            await running.goes_on()


async def test_the_way_to_one_broker_is_lost_and_found(kafka_cluster: KafkaCluster) -> None:
    async with load(kafka_cluster, kafka_cluster.proxied_servers) as running:
        leader = await kafka_cluster.leader(running.topic)
        led = [tp for tp in running.partitions if await kafka_cluster.leader(*tp) is leader]
        proxy = kafka_cluster.proxies[leader.node_id]
        proxy.black_hole()
        await until(lambda: set(led) <= running.engine.manager.stalled().keys())
        await running.goes_on(without=led)
        proxy.heal()
        await running.goes_on()


async def test_connections_are_reset_again_and_again(kafka_cluster: KafkaCluster) -> None:
    async with load(kafka_cluster, kafka_cluster.proxied_servers) as running:
        for _ in range(5):
            for proxy in kafka_cluster.proxies.values():
                proxy.reset()
            await running.goes_on(5)


async def test_answers_break_off_in_the_middle(kafka_cluster: KafkaCluster) -> None:
    async with load(kafka_cluster, kafka_cluster.proxied_servers) as running:
        for after in (3000, 300, 30):
            for proxy in kafka_cluster.proxies.values():
                proxy.truncate(after=after, reset=True)
            for proxy in kafka_cluster.proxies.values():
                await another_connection(proxy)
        for proxy in kafka_cluster.proxies.values():
            proxy.heal()
        await running.goes_on()


async def another_connection(proxy: TcpProxy) -> None:
    before = proxy.statistics().accepted
    await proxy.wait_until(lambda now: now.accepted > before)
