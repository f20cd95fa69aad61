"""The topics whose leaders are unknown or may have changed."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.errors import ConsumerError
from asyncconsumer.net.cluster import Cluster

_SECONDS_BETWEEN: Final = 0.1
# after this time all topics are refreshed, because they may have more partitions
_MAX_AGE_SECONDS: Final = 300.0

_log: Final = logging.getLogger(__name__)


class StaleTopics:
    """The topics whose metadata is to be requested, and the task that requests it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics: set[str] = set()
        self._used: set[str] = set()
        self._added = asyncio.Event()
        self._log = RateLimitedLogger(_log)

    def add(self, topic: str) -> None:
        """Wake the task that runs `run`, so that it requests the metadata of a topic."""
        self._topics.add(topic)
        self._added.set()

    async def run(self, refreshed: Callable[[], None]) -> None:
        """Request the metadata of added topics, and that of all topics in use every 5 minutes.

        Call `refreshed` after each request, even after a failed one. This ends only by
        cancellation.
        """
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
                self._log.warning(
                    "failed to refresh the metadata of %d topics: %s", len(topics), error
                )
                self._topics |= topics
                self._added.set()
            refreshed()
            await asyncio.sleep(_SECONDS_BETWEEN)

    def use(self, topic: str) -> None:
        """Request the metadata of a topic regularly from now on."""
        self._used.add(topic)
