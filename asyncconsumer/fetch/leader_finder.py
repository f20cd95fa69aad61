"""The leader finder, which requests metadata while a partition has no known leader."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.wait import wait_set
from asyncconsumer.errors import ConsumerError
from asyncconsumer.fetch.cursor import Cursor
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.metadata import Metadata

if TYPE_CHECKING:
    from asyncconsumer.types import TopicPartition

_MAX_BACKOFF_FACTOR: Final = (
    2.5  # times the first wait; limits how long a new leader stays unnoticed
)


class LeaderFinder:
    """A task that requests metadata while a partition has no broker to fetch from.

    A cursor is the fetch position of one partition. The `PartitionPlacer` chooses the broker of
    each cursor, from the metadata that `responses` yields.
    """

    def __init__(self, cluster: Cluster, backoff_ms: int, randomness: Random) -> None:
        self.unplaced: dict[TopicPartition, Cursor] = {}
        self._stale_topics: set[str] = set()
        self._cluster = cluster
        self._backoff = backoff_ms / 1000
        self._randomness = randomness
        self._wakeup = asyncio.Event()

    @property
    def metadata(self) -> Metadata:
        """The cached metadata, which may be old."""
        return self._cluster.metadata

    def add(self, cursor: Cursor) -> None:
        """Add a cursor that needs a broker."""
        self.unplaced[cursor.partition] = cursor
        self._wakeup.set()

    def discard(self, cursor: Cursor) -> None:
        """Remove a cursor that has a broker by now, or needs none."""
        self.unplaced.pop(cursor.partition, None)

    def mark_stale(self, topics: Iterable[str]) -> None:
        """Request metadata once more for topics whose leaders may have moved."""
        self._stale_topics.update(topics)
        if self._stale_topics:
            self._wakeup.set()

    async def responses(self) -> AsyncIterator[Metadata | ConsumerError]:
        """Yield the metadata of the topics without a known leader, or the error of the request.

        Requests are repeated as long as a cursor has no broker.
        """
        while True:
            await self._wakeup.wait()
            waits = backoff(self._backoff, self._backoff * _MAX_BACKOFF_FACTOR, self._randomness)
            while self.unplaced or self._stale_topics:
                self._wakeup.clear()
                topics = self._stale_topics | {tp.topic for tp in self.unplaced}
                self._stale_topics = set()
                try:
                    response: Metadata | ConsumerError = await self._cluster.refresh(topics)
                except ConsumerError as error:
                    response = error
                yield response
                if self.unplaced:
                    await self._pause(next(waits))
            self._wakeup.clear()

    async def _pause(self, seconds: float) -> None:
        """Wait for `seconds` before the next request, or until a cursor or topic is added."""
        await wait_set(self._wakeup, seconds)
