"""Metadata of many topics from real brokers."""

from random import Random
from uuid import UUID

import pytest

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import (
    UnknownTopicOrPartition,
)
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.pool import BrokerPool
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.types import TopicPartition
from tests.net.test_large_clusters import LIST


async def test_topic_names_and_ids_are_listed_without_partitions(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    async with (
        BrokerPool(config, randomness=Random(1)) as brokers,
        Cluster(brokers, randomness=Random(2)) as cluster,
    ):
        names = await cluster.topic_names()
        assert topic in names
        connection = next(iter(brokers._opened.values())).connection
        assert connection.versions[LIST][1] >= 1, "the broker lists names without partitions"
        cluster._names._may_list = False
        assert await cluster.topic_names() == names, (
            "equal to the names in the metadata of all topics"
        )
        metadata = await cluster.refresh([topic])
        topic_id = metadata.topics[topic].topic_id
        assert topic_id is not None
        assert await cluster.names_of([topic_id, UUID(int=5)]) == {topic_id: topic}
        with pytest.raises(UnknownTopicOrPartition):
            cluster.leader(TopicPartition(topic, 7))


async def test_brokers_that_cannot_list_names_are_asked_for_metadata(kafka_zk: KafkaHandle) -> None:
    topic = await kafka_zk.topic()
    config = ConnectionConfig(bootstrap_servers=kafka_zk.bootstrap_servers)
    async with (
        BrokerPool(config, randomness=Random(1)) as brokers,
        Cluster(brokers, randomness=Random(2)) as cluster,
    ):
        assert topic in await cluster.topic_names()
