"""Real brokers that a test stops, kills and pauses one by one."""

import asyncio

import pytest

from asyncconsumer import ConfigError
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle, KafkaWithZooKeeper
from asyncconsumer.testing.servers import TLS, AdminFailed
from tests.support.helpers import consume, produce, until

VALUES = [b"one", b"two", b"three"]


@pytest.fixture(params=["kafka", "kafka_zk"])
def broker(request: pytest.FixtureRequest) -> KafkaHandle:
    """Return a broker on KRaft, and one in ZooKeeper mode."""
    handle: KafkaHandle = request.getfixturevalue(request.param)
    return handle


async def test_produced_records_are_consumed(broker: KafkaHandle) -> None:
    topic = await broker.topic()
    await produce(topic, VALUES, bootstrap_servers=broker.bootstrap_servers)
    assert await consume(topic, 3, bootstrap_servers=broker.bootstrap_servers) == VALUES


async def test_partitions_are_added(broker: KafkaHandle) -> None:
    topic = await broker.topic(partitions=1)
    await broker.admin.add_partitions(topic, 4)
    assert await broker.admin.leader(topic, 3) == 1


async def test_a_re_created_topic_has_none_of_the_old_records(broker: KafkaHandle) -> None:
    topic = await broker.topic()
    await produce(topic, VALUES, bootstrap_servers=broker.bootstrap_servers)
    await broker.admin.delete_topic(topic)
    with pytest.raises(AdminFailed, match="no broker knows"):
        await broker.admin.leader(topic, 0)
    await broker.admin.create_topic(topic)
    await produce(topic, [b"new"], bootstrap_servers=broker.bootstrap_servers)
    assert await consume(topic, 1, bootstrap_servers=broker.bootstrap_servers) == [b"new"]


async def test_errors_of_the_broker_are_reported_with_its_message(broker: KafkaHandle) -> None:
    topic = await broker.topic()
    with pytest.raises(AdminFailed, match=f"{topic} could not be created.*TopicAlreadyExists"):
        await broker.admin.create_topic(topic)
    with pytest.raises(AdminFailed, match="could not get 1 partitions"):
        await broker.admin.add_partitions(topic, 1)


async def test_names_of_topics_and_groups_are_unique(kafka: KafkaHandle) -> None:
    names = {await kafka.topic(), await kafka.topic(), kafka.group(), kafka.group()}
    assert len(names) == 4
    assert all(name.startswith("test-names-of-topics-and-groups") for name in names)


async def test_a_broker_in_zookeeper_mode_registers_in_zookeeper(
    kafka_zk: KafkaWithZooKeeper,
) -> None:
    host, port = kafka_zk.zookeeper_connect.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"dump")  # lists the ephemeral nodes
    assert b"/brokers/ids/1" in await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_move_leader_moves_to_the_named_broker(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic()
    for node_id in (1, 2, 3):
        await kafka_cluster.admin.move_leader(topic, 0, to=node_id)
        assert (await kafka_cluster.leader(topic)).node_id == node_id


async def test_move_leader_moves_to_a_broker_without_a_replica(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic(replication_factor=1)
    before = (await kafka_cluster.leader(topic)).node_id
    after = before % 3 + 1
    await kafka_cluster.admin.move_leader(topic, 0, to=after)
    assert (await kafka_cluster.leader(topic)).node_id == after


@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
async def test_another_broker_leads_after_the_leader_failed(
    kafka_cluster: KafkaCluster, how: str
) -> None:
    topic = await kafka_cluster.topic()
    await produce(topic, VALUES, bootstrap_servers=kafka_cluster.bootstrap_servers)
    gone = await kafka_cluster.leader(topic)
    match how:
        case "kill":
            await gone.kill()
        case "stop":
            await gone.stop()
        case "pause":
            gone.pause()
    survivor = kafka_cluster.brokers[gone.node_id % 3 + 1]

    async def leads() -> bool:
        return await survivor.leader_of(topic, 0) not in (gone.node_id, -1)

    await until(leads)
    assert await consume(topic, 3, bootstrap_servers=survivor.address()) == VALUES


async def test_a_restarted_broker_keeps_its_port(kafka_cluster: KafkaCluster) -> None:
    broker = kafka_cluster.brokers[2]
    address, process = broker.address(), broker.process.pid
    await broker.restart()
    assert broker.address() == address
    assert broker.process.pid != process
    assert await broker.is_serving()


async def test_the_cluster_is_restored_after_each_test(kafka_cluster: KafkaCluster) -> None:
    """Check that all brokers run, though tests before this one stopped some of them."""
    assert [broker.process.state for broker in kafka_cluster.brokers.values()] == ["running"] * 3
    await kafka_cluster.server.wait_until_whole(timeout=5)


async def test_clients_connect_through_the_proxies(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic(partitions=3)
    await produce(topic, VALUES, bootstrap_servers=kafka_cluster.proxied_servers)
    assert sorted(
        await consume(topic, 3, bootstrap_servers=kafka_cluster.proxied_servers)
    ) == sorted(VALUES)
    assert all(proxy.statistics().accepted for proxy in kafka_cluster.proxies.values())


async def test_the_error_for_a_missing_listener_names_it(kafka: KafkaHandle) -> None:
    with pytest.raises(ConfigError, match="no listener TLS: start it with listeners="):
        kafka.server.addresses(TLS)
