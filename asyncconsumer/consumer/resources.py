"""The resources of a consumer: Kafka client, fetch manager, ZooKeeper, dead letter producer."""

import logging
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.dead_letters import DeadLetterProducer
from asyncconsumer.consumer.environment import Environment
from asyncconsumer.consumer.zookeeper_backend import ZooKeeperGroup
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.manager import FetchManager

_log: Final = logging.getLogger(__name__)


class Resources(NamedTuple):
    """The open clients of a consumer."""

    kafka: KafkaClient
    manager: FetchManager
    zookeeper: ZooKeeperGroup | None
    letters: DeadLetterProducer | None  # for unreadable records


async def connect(
    stack: AsyncExitStack, config: ConsumerConfig, environment: Environment
) -> Resources:
    """Open the resources that the options require. The stack closes them."""
    zookeeper, found = None, tuple[str, ...]()
    if config.zookeeper is not None:
        zookeeper = await stack.enter_async_context(ZooKeeperGroup(config.zookeeper, environment))
        found = tuple(await zookeeper.brokers())
    kafka = await stack.enter_async_context(
        KafkaClient(
            config.connection_to(found),
            patience_ms=config.member.commit_timeout_ms,
            randomness=environment.randomness,
            opener=environment.open_broker,
        )
    )
    await kafka.cluster.refresh()  # unreachable brokers and login errors raise here
    manager = FetchManager(
        kafka.brokers, kafka.cluster, config.fetch, config.engine, randomness=environment.randomness
    )
    await stack.enter_async_context(manager)
    letters = None
    if (topic := config.reading.dead_letter_topic) is not None:
        connection = config.connection_to(found)
        letters = DeadLetterProducer(
            topic,
            connection,
            randomness=environment.randomness,
            opener=environment.open_broker,
            now_ms=environment.now_ms,
        )
        await stack.enter_async_context(letters)
    return Resources(kafka, manager, zookeeper, letters)
