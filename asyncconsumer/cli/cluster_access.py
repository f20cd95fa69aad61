"""Access to the servers of a group: ZooKeeper, and the brokers that it or the user names."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from asyncconsumer.cli.signals import quiet_zookeeper
from asyncconsumer.config import ClassicConfig
from asyncconsumer.errors import ConfigError
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.discovery import PartitionDiscovery
from asyncconsumer.offsets.dual import DualOffsets
from asyncconsumer.offsets.kafka import KafkaOffsets
from asyncconsumer.offsets.store import OffsetStore
from asyncconsumer.offsets.zookeeper import ZooKeeperOffsets
from asyncconsumer.zookeeper.registry import read_addresses, read_topics
from asyncconsumer.zookeeper.session import ZooKeeperSession

_PATIENCE_MS: Final = 10_000  # a user is waiting


class ClusterAccess:
    """The connections to ZooKeeper and Kafka, and the offset stores in them."""

    def __init__(
        self, zookeeper: ZooKeeperSession, kafka: KafkaClient, *, by_zookeeper: bool
    ) -> None:
        self.zookeeper = zookeeper
        self.kafka = kafka
        self._by_zookeeper = by_zookeeper

    async def topic_names(self) -> list[str]:
        """Return all topics."""
        if self._by_zookeeper:
            return sorted((await read_topics(self.zookeeper)).found)
        return await self.kafka.cluster.topic_names()

    async def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the partitions of the topics that exist."""
        wanted = list(topics)
        if self._by_zookeeper:
            return (await read_topics(self.zookeeper, wanted)).found
        return await PartitionDiscovery(self.kafka.cluster).ask(wanted)

    def store(self, group: str, kind: str) -> OffsetStore:
        """Return the offset store of a group: zookeeper, kafka, or dual, which is both."""
        if kind == "zookeeper":
            return offsets_in(self.zookeeper, group)
        in_kafka = KafkaOffsets(
            Coordinator(group, self.kafka.brokers, self.kafka.cluster),
            patience_ms=_PATIENCE_MS,
            randomness=Random(),  # noqa: S311 - for jitter
        )
        if kind == "kafka":
            return in_kafka
        return DualOffsets(in_kafka, offsets_in(self.zookeeper, group))


def offsets_in(zookeeper: ZooKeeperSession, group: str) -> ZooKeeperOffsets:
    """Return a group's offset store in ZooKeeper, for a client that is not a member."""
    return ZooKeeperOffsets(
        zookeeper, group, epoch=lambda: zookeeper.epoch, patience_ms=_PATIENCE_MS
    )


@asynccontextmanager
async def zookeeper_of(config: ClassicConfig) -> AsyncIterator[ZooKeeperSession]:
    """Open a ZooKeeper session that sees all earlier writes."""
    quiet_zookeeper(quiet=True)
    randomness = Random()  # noqa: S311 - for jitter
    async with ZooKeeperSession(config.zookeeper(), randomness=randomness) as session:
        await session.sync()
        yield session


@asynccontextmanager
async def reach_of(
    config: ClassicConfig, zookeeper: ZooKeeperSession
) -> AsyncIterator[ClusterAccess]:
    """Connect also to the brokers that the user names, or that ZooKeeper lists."""
    seeds: list[str] = []
    if not config.bootstrap_servers:
        protocol = config.security_protocol
        seeds = [str(address) for address in await read_addresses(zookeeper, protocol)]
        if not seeds:
            raise ConfigError(
                f"ZooKeeper at {config.zookeeper_connect} names no broker that speaks {protocol}: "
                "start one, check the chroot, or give --bootstrap-servers"
            )
    async with KafkaClient(config.connection(seeds), patience_ms=_PATIENCE_MS) as kafka:
        yield ClusterAccess(zookeeper, kafka, by_zookeeper=bool(seeds))
