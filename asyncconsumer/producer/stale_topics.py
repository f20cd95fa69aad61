"""The topics whose leaders are unknown or may have changed."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConsumerError
from asyncconsumer.net.cluster import Cluster

_SECONDS_BETWEEN: Final = 0.1
_MAX_AGE_SECONDS: Final = 300.0  # after which all topics are refreshed, because they may grow

_log: Final = logging.getLogger(__name__)


class StaleTopics:
    """The topics whose metadata is out of date, and the task that requests their metadata."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics: set[str] = set()
        self._used: set[str] = set()
        self._added = asyncio.Event()
        self._log = RateLimitedLogger(_log)

    def add(self, topic: str) -> None:
        """Request the metadata of a topic again."""
        self._topics.add(topic)
        self._added.set()

    async def run(self, refreshed: Callable[[], None]) -> None:
        """Request the metadata of added topics until cancelled. Call `refreshed` after each."""
        while True:
            try:
                async with asyncio.timeout(_MAX_AGE_SECONDS):
                    await self._added.wait()
            except TimeoutError:
                self._topics |= self._used
            self._added.clear()
            topics, self._topics = self._topics, set()
            self._used |= topics
            try:
                await self._cluster.refresh(topics)
            except ConsumerError as error:
                self._log.warning("failed to refresh the metadata: %s", error)
                self._topics |= topics
                self._added.set()
            refreshed()
            await asyncio.sleep(_SECONDS_BETWEEN)

    def use(self, topic: str) -> None:
        """Keep the metadata of a topic up to date from now on."""
        self._used.add(topic)
