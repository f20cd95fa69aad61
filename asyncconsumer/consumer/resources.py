"""The clients of a consumer: for Kafka, for ZooKeeper, for fetches and for dead letters."""

import logging
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.dead_letters import DeadLetterProducer
from asyncconsumer.consumer.zookeeper_backend import ZooKeeperGroup
from asyncconsumer.environment import Environment
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.metrics.recorder import Recorder

_log: Final = logging.getLogger(__name__)


class Resources(NamedTuple):
    """The open clients that a consumer uses."""

    kafka: KafkaClient
    manager: FetchManager
    zookeeper: ZooKeeperGroup | None
    dead_letters: DeadLetterProducer | None  # for unreadable records


async def open_resources(
    stack: AsyncExitStack, config: ConsumerConfig, environment: Environment, recorder: Recorder
) -> Resources:
    """Open the clients that the options require. `stack` closes them."""
    zookeeper, brokers = None, tuple[str, ...]()
    if config.zookeeper is not None:
        zookeeper = await stack.enter_async_context(ZooKeeperGroup(config.zookeeper, environment))
        brokers = tuple(await zookeeper.brokers())
    kafka = await stack.enter_async_context(
        KafkaClient(
            config.connection_to(brokers),
            patience_ms=config.member.commit_timeout_ms,
            randomness=environment.randomness,
            opener=environment.open_broker,
        )
    )
    await kafka.cluster.refresh()  # unreachable brokers and login errors raise here
    manager = FetchManager(
        kafka.brokers,
        kafka.cluster,
        config.fetch,
        config.engine,
        randomness=environment.randomness,
        recorder=recorder,
    )
    await stack.enter_async_context(manager)
    dead_letters = None
    if (topic := config.delivery.dead_letter_topic) is not None:
        connection = config.connection_to(brokers)
        dead_letters = DeadLetterProducer(
            topic,
            connection,
            randomness=environment.randomness,
            opener=environment.open_broker,
            now_ms=environment.now_ms,
        )
        await stack.enter_async_context(dead_letters)
    return Resources(kafka, manager, zookeeper, dead_letters)
