"""Cluster metadata from real brokers."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from asyncconsumer.errors import (
    AccessDenied,
    InvalidTopic,
    LeaderNotAvailable,
    NoBrokerAnswered,
    TopicAccessDenied,
    UnknownTopicOrPartition,
    WrongCredentials,
)
from asyncconsumer.net.metadata import Leader
from asyncconsumer.testing.handles import KafkaCluster, KafkaHandle
from asyncconsumer.testing.servers import SASL_SCRAM, Kafka
from asyncconsumer.types import TopicPartition
from tests.net.test_cluster import joined
from tests.support.helpers import until


def client_settings(kafka: Kafka) -> dict[str, Any]:
    return dict(kafka.client_settings(SASL_SCRAM))


# --- real clusters -------------------------------------------------------------------------------


@pytest.fixture(params=["kafka", "kafka_zk"])
def server(request: pytest.FixtureRequest) -> KafkaHandle:
    handle = request.getfixturevalue(request.param)
    assert isinstance(handle, KafkaHandle)
    return handle


async def test_topics_are_described_with_ids_epochs_and_leaders(server: KafkaHandle) -> None:
    topic = await server.topic(partitions=3)
    async with joined(bootstrap_servers=server.bootstrap_servers) as cluster:
        metadata = await cluster.refresh([topic])
        result = metadata.topics[topic]
        assert isinstance(result.topic_id, UUID)
        assert sorted(result.partitions) == [0, 1, 2]
        leader = cluster.leader(TopicPartition(topic, 1))
        assert leader.epoch == 0
        assert str(leader.broker.address) in server.bootstrap_servers
        assert result.partitions[1].replicas == (leader.broker.node_id,)
        assert metadata.controller in metadata.brokers
        assert set(metadata.topics) == {topic}, "only the requested topic"


async def test_a_metadata_request_never_creates_a_topic(server: KafkaHandle) -> None:
    deleted = await server.topic()
    missing = f"{deleted}-missing"
    async with joined(bootstrap_servers=server.bootstrap_servers) as cluster:
        assert (await cluster.refresh([deleted])).topics[deleted].error is None
        await server.admin.delete_topic(deleted)
        for _ in range(5):
            metadata = await cluster.refresh([deleted, missing])
            for topic in (deleted, missing):
                assert isinstance(metadata.topics[topic].error, UnknownTopicOrPartition)
                with pytest.raises(UnknownTopicOrPartition, match=topic):
                    cluster.leader(TopicPartition(topic, 0))


async def test_a_re_created_topic_has_another_id(server: KafkaHandle) -> None:
    topic = await server.topic()
    async with joined(bootstrap_servers=server.bootstrap_servers) as cluster:
        before = (await cluster.refresh([topic])).topics[topic]
        await server.admin.delete_topic(topic)
        await server.admin.create_topic(topic)
        after = (await cluster.refresh([topic])).topics[topic]
        assert before.topic_id != after.topic_id


@pytest.mark.parametrize("name", ["a" * 249, "a" * 250, "a" * 10_000, ".", "..", "ä", "a b", ""])
async def test_an_invalid_topic_name_does_not_affect_other_topics(
    kafka: KafkaHandle, name: str
) -> None:
    topic = await kafka.topic()
    async with joined(bootstrap_servers=kafka.bootstrap_servers) as cluster:
        metadata = await cluster.refresh([topic, name])
        assert metadata.topics[topic].error is None
        if name:
            assert isinstance(metadata.topics[name].error, InvalidTopic | UnknownTopicOrPartition)


async def test_a_new_leader_is_in_the_metadata_with_a_higher_epoch(
    kafka_cluster: KafkaCluster,
) -> None:
    topic = await kafka_cluster.topic(partitions=1)
    partition = TopicPartition(topic, 0)
    async with joined(bootstrap_servers=kafka_cluster.bootstrap_servers) as cluster:
        await cluster.refresh([topic])
        before = cluster.leader(partition)
        await (await kafka_cluster.leader(topic, 0)).kill()

        async def moved() -> bool:
            await cluster.refresh([topic])
            try:
                return cluster.leader(partition).broker != before.broker
            except LeaderNotAvailable:
                return False

        await until(moved)
        assert cluster.leader(partition).epoch > before.epoch


async def test_connections_that_are_reset_or_cut_are_replaced(kafka_cluster: KafkaCluster) -> None:
    topic = await kafka_cluster.topic(partitions=1)
    async with joined(bootstrap_servers=kafka_cluster.proxied_servers) as cluster:
        await cluster.refresh([topic])
        assert {str(broker.address) for broker in cluster.metadata.brokers.values()} == set(
            kafka_cluster.proxied_servers.split(",")
        )
        for verb in ("reset", "cut"):
            for proxy in kafka_cluster.proxies.values():
                getattr(proxy, verb)()

            async def answered() -> bool:
                try:
                    return (await cluster.refresh([topic])).topics[topic].error is None
                except NoBrokerAnswered:  # all connections of the pool were closed
                    return False

            await until(answered, seconds=5)


async def test_a_denied_topic_is_available_after_access_is_granted(secure: Kafka) -> None:
    topic = "closed-metadata"
    await secure.admin.create_topic(topic)
    partition = TopicPartition(topic, 0)
    async with joined(**client_settings(secure)) as cluster:
        metadata = await cluster.refresh([topic])
        assert isinstance(metadata.topics[topic].error, TopicAccessDenied)
        with pytest.raises(AccessDenied, match=topic):
            cluster.leader(partition)
        await secure.admin.allow("alice", "topic", topic, "read", "describe")

        async def granted() -> bool:
            return (await cluster.refresh([topic])).topics[topic].error is None

        await until(granted)
        assert isinstance(cluster.leader(partition), Leader)


async def test_wrong_credentials_are_reported_at_once(secure: Kafka) -> None:
    settings = client_settings(secure) | {"sasl_plain_password": "guessed"}
    async with joined(**settings) as cluster:
        with pytest.raises(WrongCredentials):
            async with asyncio.timeout(5):
                await cluster.refresh(["any"])
