"""Registrations of brokers and topics in a real ZooKeeper."""

from asyncconsumer.errors import BadZnode
from asyncconsumer.testing.handles import KafkaWithZooKeeper, ZooKeeperHandle
from asyncconsumer.zookeeper.recipes import ensure_path
from asyncconsumer.zookeeper.registry import (
    read_brokers,
    read_topics,
)
from tests.support.zookeeper_sessions import session
from tests.zookeeper.test_registry import registration


async def test_invalid_registrations_are_reported_and_the_others_are_read(
    zookeeper: ZooKeeperHandle,
) -> None:
    root = zookeeper.path()
    async with session(zookeeper.connect) as zk:
        await ensure_path(zk, root)
    async with session(zookeeper.connect + root) as zk:
        assert (await read_brokers(zk)).nodes == {}
        assert (await read_topics(zk)).nodes == {}
        for name, data in {
            "1": registration(host="k", port=9),
            "2": b"\xff\xfe",
            "02": registration(host="k", port=9),
            "x": registration(host="k", port=9),
            "3": b"x" * 1_000_000,
            "\u2215..": registration(host="k", port=9),
        }.items():
            await ensure_path(zk, "/brokers/ids")
            await zk.create(f"/brokers/ids/{name}", data)
        brokers = await read_brokers(zk)
        assert list(brokers.nodes) == [1]
        assert len(brokers.bad) == 5
        assert {type(error) for error in brokers.bad} == {BadZnode}

        await ensure_path(zk, "/brokers/topics")
        await zk.create("/brokers/topics/good", registration(partitions={"0": [1], "1": [1]}))
        await zk.create("/brokers/topics/bad", b"{")
        await zk.create("/brokers/topics/" + "x" * 250, registration(partitions={}))
        topics = await read_topics(zk)
        assert topics.nodes == {"good": (0, 1)}
        assert len(topics.bad) == 2
        assert (await read_topics(zk, ["good", "none"])).nodes == {"good": (0, 1)}


async def test_brokers_and_topics_of_a_real_cluster_are_read(kafka_zk: KafkaWithZooKeeper) -> None:
    topic = await kafka_zk.topic(partitions=3)
    async with session(kafka_zk.zookeeper_connect) as zk:
        brokers, topics = await read_brokers(zk), await read_topics(zk)
    assert brokers.bad == topics.bad == ()
    addresses = {str(broker.address()) for broker in brokers.nodes.values()}
    assert addresses & set(kafka_zk.bootstrap_servers.split(","))
    assert topics.nodes[topic] == (0, 1, 2)
