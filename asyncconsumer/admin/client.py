"""Requests of the admin client: to the controller, to a group's coordinator, or to every broker."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import Any, Final, TypeVar

from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.aiokafka_parts import Request
from asyncconsumer.config import ConnectionConfig, ZooKeeperConfig
from asyncconsumer.environment import Environment
from asyncconsumer.errors import (
    BrokerError,
    ConfigError,
    ConsumerError,
    NoBrokerAnswered,
    UnknownTopicOrPartition,
)
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.metadata import Metadata
from asyncconsumer.net.pool import Traffic
from asyncconsumer.types import Address, TopicPartition
from asyncconsumer.zookeeper.registry import read_addresses
from asyncconsumer.zookeeper.session import ZooKeeperSession

_UNKNOWN_TOPIC_MS: Final = 2_000  # a new topic reaches all brokers within this time

T = TypeVar("T")
ResponseRow = dict[str, Any]


class AdminClient(AsyncResource):
    """A client for admin requests, with retries, within an ``async with`` block.

    Without bootstrap servers, it connects to the brokers that are registered in ZooKeeper.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        zookeeper: ZooKeeperConfig | None,
        *,
        brokers_from_zookeeper: bool,
        patience_ms: int,
        environment: Environment | None = None,
    ) -> None:
        self._config = config
        self._zookeeper_config = zookeeper
        self._brokers_from_zookeeper = brokers_from_zookeeper
        self._patience_ms = patience_ms
        self._environment = environment or Environment.current()
        self._kafka: KafkaClient | None = None
        self._zookeeper: ZooKeeperSession | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        config = self._config
        if self._zookeeper_config is not None:
            self._zookeeper = await stack.enter_async_context(
                ZooKeeperSession(
                    self._zookeeper_config,
                    randomness=self.randomness,
                    opener=self._environment.open_zookeeper,
                )
            )
            await self._zookeeper.sync()
            if self._brokers_from_zookeeper:
                config = replace(config, bootstrap_servers=await self._registered_brokers())
        self._kafka = await stack.enter_async_context(
            KafkaClient(
                config,
                patience_ms=self._patience_ms,
                opener=self._environment.open_broker,
                randomness=self.randomness,
            )
        )

    async def _registered_brokers(self) -> list[str]:
        session, protocol = self.zookeeper, self._config.security_protocol
        assert session is not None
        addresses = await read_addresses(session, protocol)
        if not addresses:
            raise ConfigError(
                f"no broker with a {protocol} listener is registered in ZooKeeper at "
                f"{session.config.zookeeper_connect}. Start a broker, check the chroot, or set "
                "`bootstrap_servers`"
            )
        return [str(address) for address in addresses]

    @property
    def kafka(self) -> KafkaClient:
        """Return the client for connections to the brokers."""
        if self._kafka is None:
            raise ConfigError("open the admin client first: async with Admin(...) as admin")
        return self._kafka

    @property
    def zookeeper(self) -> ZooKeeperSession | None:
        """Return the ZooKeeper session, or None if the client has none."""
        return self._zookeeper

    @property
    def patience_ms(self) -> int:
        """Return the time limit for retries in ms."""
        return self._patience_ms

    @property
    def randomness(self) -> Random:
        """Return the random number generator for the jitter of retries."""
        return self._environment.randomness

    def coordinator(self, group: str) -> Coordinator:
        """Return an object that finds the group's coordinator and opens connections to it."""
        if not group:
            raise ConfigError("the group is empty. Pass the name of a group")
        return Coordinator(group, self.kafka.brokers, self.kafka.cluster)

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `call`. Retry after retriable errors, for up to `patience_ms`."""
        deadline = RetryDeadline(self._patience_ms, self.randomness)
        short = RetryDeadline(min(self._patience_ms, _UNKNOWN_TOPIC_MS), self.randomness)
        while True:
            try:
                return await call()
            except ConsumerError as error:
                unknown = isinstance(error, UnknownTopicOrPartition)
                await (short if unknown else deadline).wait_or_raise(error)

    async def ask_any(self, message: Request) -> ResponseRow:
        """Send a request to any broker. Return the response."""
        row: ResponseRow = (await self.kafka.cluster.ask_any(message)).to_object()
        return row

    async def ask_controller(self, message: Request) -> ResponseRow:
        """Send a request to the controller, and return the response.

        If no controller is known, send the request to any broker, which forwards it.
        """
        metadata = await self.kafka.cluster.refresh()
        broker = metadata.brokers.get(metadata.controller)
        if broker is None:
            return await self.ask_any(message)
        request = self.kafka.brokers.request(broker.address, Traffic.CONTROL, message)
        row: ResponseRow = (await request).to_object()
        return row

    async def ask_coordinator(self, coordinator: Coordinator, message: Request) -> ResponseRow:
        """Send a request to the coordinator of a group. Return the response."""
        async with coordinator.reached(Traffic.GROUP) as connection:
            row: ResponseRow = (await connection.request(message)).to_object()
        return row

    async def ask_all(self, message: Callable[[], Request]) -> list[ResponseRow]:
        """Send a request, which `message` creates, to each broker. Return all responses."""
        metadata = await self.kafka.cluster.refresh()
        addresses = [broker.address for broker in metadata.brokers.values()]
        if not addresses:
            raise NoBrokerAnswered(())
        rows: list[ResponseRow] = []

        async def ask(address: Address) -> None:
            request = self.kafka.brokers.request(address, Traffic.CONTROL, message())
            rows.append((await request).to_object())

        await for_each(addresses, ask)
        return rows

    async def metadata(self, topics: list[str]) -> Metadata:
        """Return fresh metadata of topics. If a topic has an error, raise it."""
        metadata = await self.kafka.cluster.refresh(topics)
        for name in topics:
            topic = metadata.topics.get(name)
            if topic is None:
                raise UnknownTopicOrPartition(f"topic {name!r}")
            if topic.error is not None:
                raise BrokerError.from_code(topic.error.code, f"topic {name!r}")
        return metadata

    async def existing(self, topics: set[str]) -> set[TopicPartition]:
        """Return the partitions of all topics in `topics` that exist."""
        metadata = await self.kafka.cluster.refresh(topics)
        return {
            TopicPartition(name, number)
            for name in topics
            if (topic := metadata.topics.get(name)) is not None and topic.error is None
            for number in topic.partitions
        }


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise the error for a code in a response, unless the code is 0.

    `about` is the subject of the request. `message` is the broker's explanation.
    """
    if code:
        raise BrokerError.from_code(code, f"{about} ({message})" if message else about)
