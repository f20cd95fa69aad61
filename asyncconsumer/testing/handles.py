"""Handles with which a test uses servers that all tests of a run share."""

import itertools
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from asyncconsumer.testing.proxy import TcpProxy
from asyncconsumer.testing.servers import Admin, Broker, Kafka, ZooKeeper
from asyncconsumer.testing.settling import SETTLE_SECONDS, settle

if TYPE_CHECKING:
    from asyncconsumer.producer.batch import RecordMetadata
    from asyncconsumer.testing.values import HeadersToSend, PublishedRecord

# pytest imports this module in all projects, so clients are imported when a test uses them

_LONGEST_NAME: Final = 100  # of the 249 that Kafka allows, so that a test can append to the name


class _Names:
    """A source of unique names that contain the name of the test."""

    def __init__(self, test: str) -> None:
        self._stem = re.sub(r"[^a-zA-Z0-9]+", "-", test)[:_LONGEST_NAME].strip("-")
        self._run = secrets.token_hex(3)
        self._numbers = itertools.count(1)

    def fresh(self, kind: str) -> str:
        return f"{self._stem}-{kind}-{self._run}-{next(self._numbers)}"


class KafkaHandle:
    """A handle with which one test uses a shared Kafka cluster, `server`."""

    def __init__(self, server: Kafka, test: str) -> None:
        self.server = server
        self._names = _Names(test)
        self._groups: set[str] = set()
        self._sent: set[str] = set()

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers, `host:port,...`."""
        return self.server.bootstrap_servers

    @property
    def admin(self) -> Admin:
        """The admin client for topics, partitions, leaders, users and permissions."""
        return self.server.admin

    async def topic(
        self,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic for this test and return its name. By default all brokers are replicas."""
        name = self._names.fresh("topic")
        await self.admin.create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor or len(self.server.brokers),
            config=config,
        )
        return name

    def group(self) -> str:
        """Return a new name of a consumer group for this test."""
        name = self._names.fresh("group")
        self._groups.add(name)
        return name

    async def send(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: "HeadersToSend" = (),
        partition: int | None = None,
    ) -> "RecordMetadata":
        """Write a record, and wait until all in-sync replicas have it. Return its offset.

        A dict, a list or a model is written as JSON, text as UTF-8, and bytes as they are. A
        record without a value is a tombstone.
        """
        from asyncconsumer.producer.producer import Producer
        from asyncconsumer.testing.values import encode_headers

        self._sent.add(topic)
        async with Producer[object, object](bootstrap_servers=self.bootstrap_servers) as producer:
            return await producer.send_and_wait(
                topic, value, key=key, headers=encode_headers(headers), partition=partition
            )

    async def read(self, topic: str) -> "list[PublishedRecord]":
        """Return the records that a topic has now, or an empty list if it does not exist.

        Records of several partitions are merged by their timestamps. Records of open and of
        aborted transactions are left out.
        """
        from asyncconsumer.testing.cluster_reader import ClusterReader

        async with ClusterReader(self.bootstrap_servers) as reader:
            return await reader.records(topic)

    async def settled(self, group: str | None = None, *, timeout: float = SETTLE_SECONDS) -> None:
        """Wait until all records of the topics that `send` wrote to are committed.

        With `group`, wait for the commits of that group. Otherwise wait for those of all groups
        whose names `group()` has returned. A group must commit all records of each topic in which
        it has committed an offset. Each topic needs at least one such group.

        Raise `NotSettled` with the pending records after `timeout` seconds.
        """
        from asyncconsumer.testing.cluster_reader import ClusterReader

        groups = self._groups if group is None else {group}
        async with ClusterReader(self.bootstrap_servers) as reader:
            await settle(lambda: reader.behind(self._sent, groups), timeout)


class KafkaWithZooKeeper(KafkaHandle):
    """A Kafka cluster in ZooKeeper mode, and its ZooKeeper."""

    def __init__(self, server: Kafka, zookeeper: ZooKeeper, test: str) -> None:
        super().__init__(server, test)
        self.zookeeper = zookeeper

    @property
    def zookeeper_connect(self) -> str:
        """The connection string of the ZooKeeper."""
        return self.zookeeper.connect


class KafkaCluster(KafkaHandle):
    """A cluster of three brokers for faults. The fixture repairs it after the test.

    `proxied_servers` are the same brokers behind the TCP proxies in `proxies`, by broker id.
    """

    def __init__(self, server: Kafka, proxies: Mapping[int, TcpProxy], test: str) -> None:
        super().__init__(server, test)
        self.proxies = proxies

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers by id."""
        return self.server.brokers

    @property
    def proxied_servers(self) -> str:
        """The bootstrap servers behind the proxies."""
        return ",".join(proxy.address for proxy in self.proxies.values())

    async def leader(self, topic: str, partition: int = 0) -> Broker:
        """Return the broker that leads a partition."""
        return self.brokers[await self.admin.leader(topic, partition)]


class ZooKeeperHandle:
    """A handle with which one test uses a shared ZooKeeper server, `server`."""

    def __init__(self, server: ZooKeeper, test: str) -> None:
        self.server = server
        self._names = _Names(test)

    @property
    def connect(self) -> str:
        """The connection string, `host:port`."""
        return self.server.connect

    def path(self) -> str:
        """Return a new path for this test, at which no znode exists."""
        return "/" + self._names.fresh("node")

    def group(self) -> str:
        """Return a new name of a consumer group for this test."""
        return self._names.fresh("group")
