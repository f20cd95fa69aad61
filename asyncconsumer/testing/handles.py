"""What a test is given of a server that it shares with the other tests of the run."""

import itertools
import re
import secrets
from collections.abc import Mapping
from typing import Final

from asyncconsumer.testing.proxy import TcpProxy
from asyncconsumer.testing.servers import Admin, Broker, Kafka, ZooKeeper

_LONGEST_NAME: Final = 100  # of Kafka's 249, so that a test may add to it


class _Names:
    """Names that no other test and no other run has, and that tell whose they are."""

    def __init__(self, test: str) -> None:
        self._stem = re.sub(r"[^a-zA-Z0-9]+", "-", test)[:_LONGEST_NAME].strip("-")
        self._run = secrets.token_hex(3)
        self._numbers = itertools.count(1)

    def fresh(self, kind: str) -> str:
        return f"{self._stem}-{kind}-{self._run}-{next(self._numbers)}"


class KafkaHandle:
    """A Kafka cluster as one test sees it. `server` has everything else."""

    def __init__(self, server: Kafka, test: str) -> None:
        self.server = server
        self._names = _Names(test)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, `host:port,...`."""
        return self.server.bootstrap_servers

    @property
    def admin(self) -> Admin:
        """Topics, partitions, leaders, users and access."""
        return self.server.admin

    async def topic(
        self,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """The name of a new topic of this test's own; replicated on every broker by default."""
        name = self._names.fresh("topic")
        await self.admin.create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor or len(self.server.brokers),
            config=config,
        )
        return name

    def group(self) -> str:
        """The name of a consumer group of this test's own."""
        return self._names.fresh("group")


class KafkaWithZooKeeper(KafkaHandle):
    """A Kafka cluster in ZooKeeper mode, and its ZooKeeper."""

    def __init__(self, server: Kafka, zookeeper: ZooKeeper, test: str) -> None:
        super().__init__(server, test)
        self.zookeeper = zookeeper

    @property
    def zookeeper_connect(self) -> str:
        """The connection string of its ZooKeeper."""
        return self.zookeeper.connect


class KafkaCluster(KafkaHandle):
    """A cluster of three brokers to be broken: whatever a test did to them is mended after it.

    `proxied_servers` leads to the same brokers through the TCP proxies in `proxies`, by broker id.
    """

    def __init__(self, server: Kafka, proxies: Mapping[int, TcpProxy], test: str) -> None:
        super().__init__(server, test)
        self.proxies = proxies

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers by id, each to be stopped, killed, paused, restarted."""
        return self.server.brokers

    @property
    def proxied_servers(self) -> str:
        """Where clients connect that are to come through the proxies."""
        return ",".join(proxy.address for proxy in self.proxies.values())

    async def leader(self, topic: str, partition: int = 0) -> Broker:
        """The broker that leads a partition."""
        return self.brokers[await self.admin.leader(topic, partition)]


class ZooKeeperHandle:
    """A ZooKeeper server as one test sees it."""

    def __init__(self, server: ZooKeeper, test: str) -> None:
        self.server = server
        self._names = _Names(test)

    @property
    def connect(self) -> str:
        """The connection string, `host:port`."""
        return self.server.connect

    def path(self) -> str:
        """A path of this test's own; nothing is there yet."""
        return "/" + self._names.fresh("node")

    def group(self) -> str:
        """The name of a consumer group of this test's own."""
        return self._names.fresh("group")
