"""The sources of topic names and partitions: ZooKeeper or the brokers."""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from asyncconsumer.aio.concurrency import for_each
from asyncconsumer.errors import BadZnode, ConsumerError
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.discovery import PartitionDiscovery
from asyncconsumer.zookeeper import paths
from asyncconsumer.zookeeper.registry import parse_topic
from asyncconsumer.zookeeper.session import ZooKeeperSession

if TYPE_CHECKING:
    from asyncconsumer.zookeeper.requests import ZnodeData
    from asyncconsumer.zookeeper.watch import Watch

_log: Final = logging.getLogger(__name__)


class TopicSource(Protocol):
    """The topics that a member may read. An implementation sets an event when they change."""

    async def names(self) -> list[str]:
        """Return the names of all topics."""

    async def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the partitions of those topics that exist, and watch the topics from now on."""

    async def run(self) -> None:
        """Run the background work of the source, if it has any."""


class ZooKeeperTopics:
    """The topics as brokers in ZooKeeper mode store them in znodes."""

    def __init__(self, session: ZooKeeperSession, wakeup: asyncio.Event) -> None:
        self._session = session
        self._wakeup = wakeup
        self._names: Watch[list[str] | None] | None = None
        self._last_names: list[str] = []
        self._watches: dict[str, Watch[ZnodeData | None]] = {}
        self._known: dict[str, tuple[int, ...]] = {}

    async def names(self) -> list[str]:
        """Return the names of all topics, and watch them from the first call on."""
        if self._names is None:
            self._names = self._session.watch_children(paths.TOPICS, self._wakeup)
        if self._names.changed.is_set():
            self._last_names = [name for name in await self._names.read() or () if _is_valid(name)]
        return self._last_names

    async def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the partitions of the topics, and watch only these topics from now on.

        Only topics that changed are read again.
        """
        valid = [topic for topic in topics if _is_valid(topic)]
        for topic in self._watches.keys() - set(valid):
            self._watches.pop(topic).close()
            self._known.pop(topic, None)
        for topic in valid:
            if topic not in self._watches:
                path = paths.topic(topic)
                self._watches[topic] = self._session.watch_data(path, self._wakeup)
        stale = [topic for topic in valid if self._watches[topic].changed.is_set()]
        await for_each(stale, self._read)
        return {topic: self._known[topic] for topic in valid if topic in self._known}

    async def _read(self, topic: str) -> None:
        watch = self._watches[topic]
        node = await watch.read()
        self._known.pop(topic, None)
        if node is None:
            return
        try:
            _, self._known[topic] = parse_topic(watch.path, node.data)
        except BadZnode as error:
            _log.warning("a topic is ignored: %s", error)

    async def run(self) -> None:
        """Do nothing, because watches set the event."""

    def close(self) -> None:
        """Close all watches of topics."""
        for watch in self._watches.values():
            watch.close()
        if self._names is not None:
            self._names.close()


class KafkaTopics:
    """The topics in the brokers' metadata, polled every few seconds."""

    def __init__(self, cluster: Cluster, wakeup: asyncio.Event, every_ms: int) -> None:
        self._cluster = cluster
        self._discovery = PartitionDiscovery(cluster)
        self._wakeup = wakeup
        self._poll_seconds = every_ms / 1000
        # the names last returned by `names`; None before the first call
        self._names: frozenset[str] | None = None
        self._known: dict[str, tuple[int, ...]] = {}
        self._polled: list[str] = []

    async def names(self) -> list[str]:
        """Return the names of all topics."""
        self._names = frozenset(await self._cluster.recent_topic_names())
        return sorted(self._names)

    async def partitions(self, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Return the partitions of those topics that exist, and poll the topics from now on."""
        self._polled = list(topics)
        self._known = await self._discovery.ask(self._polled)
        return self._known

    async def run(self) -> None:
        """Poll the metadata every few seconds, and set the event if it changed."""
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                changed = self._names is not None and self._names != frozenset(
                    await self._cluster.recent_topic_names()
                )
                changed |= bool(self._polled) and self._known != await self._discovery.ask(
                    self._polled
                )
            except ConsumerError as error:
                _log.info("the refresh of topic metadata failed: %s", error)
                continue
            if changed:
                self._wakeup.set()


def _is_valid(name: str) -> bool:
    return paths.is_legal(name)
