"""The connections of the `groups` commands to ZooKeeper and to the brokers of the same cluster."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from asyncconsumer.admin.zookeeper_groups import zookeeper_offsets
from asyncconsumer.cli.signals import log_zookeeper_retries
from asyncconsumer.config import ClassicConfig
from asyncconsumer.errors import ConfigError
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.discovery import PartitionDiscovery
from asyncconsumer.offsets.dual import DualOffsets
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.zookeeper.registry import read_addresses, read_topics
from asyncconsumer.zookeeper.session import ZooKeeperSession

_TIMEOUT_MS: Final = 10_000  # short, because a user is waiting


class ClusterAccess:
    """Open connections to ZooKeeper and Kafka, and the offset stores of groups.

    With `topics_in_zookeeper`, topics are read from ZooKeeper, otherwise from the brokers.
    """

    def __init__(
        self, zookeeper: ZooKeeperSession, kafka: KafkaClient, *, topics_in_zookeeper: bool
    ) -> None:
        self.zookeeper = zookeeper
        self.kafka = kafka
        self._topics_in_zookeeper = topics_in_zookeeper

    async def topic_names(self) -> list[str]:
        """Return the names of all topics."""
        if self._topics_in_zookeeper:
            return sorted((await read_topics(self.zookeeper)).nodes)
        return await self.kafka.cluster.topic_names()

    async def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the partition numbers of each topic. Leave out topics that do not exist."""
        names = list(topics)
        if self._topics_in_zookeeper:
            return (await read_topics(self.zookeeper, names)).nodes
        return await PartitionDiscovery(self.kafka.cluster).ask(names)

    def store(self, group: str, storage: str) -> OffsetStore:
        """Return the offset store of a group. `storage` is zookeeper, kafka, or dual for both."""
        if storage == "zookeeper":
            return zookeeper_offsets(self.zookeeper, group)
        kafka_offsets = KafkaOffsets(
            Coordinator(group, self.kafka.brokers, self.kafka.cluster),
            patience_ms=_TIMEOUT_MS,
            randomness=Random(),  # noqa: S311 - for jitter
        )
        if storage == "kafka":
            return kafka_offsets
        return DualOffsets(kafka_offsets, zookeeper_offsets(self.zookeeper, group))


@asynccontextmanager
async def open_zookeeper(config: ClassicConfig) -> AsyncIterator[ZooKeeperSession]:
    """Return an async context manager that opens a ZooKeeper session.

    Reads in the session see all writes that were done before it was opened.
    """
    log_zookeeper_retries(enabled=False)
    randomness = Random()  # noqa: S311 - for jitter
    async with ZooKeeperSession(config.zookeeper(), randomness=randomness) as session:
        await session.sync()
        yield session


@asynccontextmanager
async def open_cluster(
    config: ClassicConfig, zookeeper: ZooKeeperSession
) -> AsyncIterator[ClusterAccess]:
    """Return an async context manager that connects to the configured brokers.

    Without configured brokers, it connects to those that are registered in ZooKeeper.
    """
    seeds: list[str] = []
    if not config.bootstrap_servers:
        protocol = config.security_protocol
        seeds = [str(address) for address in await read_addresses(zookeeper, protocol)]
        if not seeds:
            raise ConfigError(
                f"No broker with a {protocol} listener is registered in ZooKeeper at "
                f"{config.zookeeper_connect}. Start a broker, check the chroot, or set "
                "--bootstrap-servers."
            )
    async with KafkaClient(config.connection(seeds), patience_ms=_TIMEOUT_MS) as kafka:
        yield ClusterAccess(zookeeper, kafka, topics_in_zookeeper=bool(seeds))
