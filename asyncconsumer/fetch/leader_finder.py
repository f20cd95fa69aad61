"""The leader finder: requests metadata while a partition has no known leader."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.errors import ConsumerError
from asyncconsumer.fetch.cursor import Cursor
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.metadata import Metadata

if TYPE_CHECKING:
    from asyncconsumer.types import TopicPartition

_MOST_BETWEEN: Final = 2.5  # times the first wait; limits how long a new leader stays unnoticed


class LeaderFinder:
    """The cursors without a broker, and the metadata requests for them.

    The finder does not place cursors. The consumer of `answers` does.
    """

    def __init__(self, cluster: Cluster, backoff_ms: int, randomness: Random) -> None:
        self.unplaced: dict[TopicPartition, Cursor] = {}
        self._doubted: set[str] = set()
        self._cluster = cluster
        self._backoff = backoff_ms / 1000
        self._randomness = randomness
        self._missing = asyncio.Event()

    @property
    def known(self) -> Metadata:
        """Return the cached metadata, which may be old."""
        return self._cluster.metadata

    def add(self, cursor: Cursor) -> None:
        """Add a cursor that needs a broker."""
        self.unplaced[cursor.partition] = cursor
        self._missing.set()

    def discard(self, cursor: Cursor) -> None:
        """Remove a cursor that has a broker, or needs none."""
        self.unplaced.pop(cursor.partition, None)

    def doubt(self, topics: Iterable[str]) -> None:
        """Request metadata once for topics whose leaders may have moved."""
        self._doubted.update(topics)
        if self._doubted:
            self._missing.set()

    async def answers(self) -> AsyncIterator[Metadata | ConsumerError]:
        """Yield metadata of the topics in question, or the error, as often as needed."""
        while True:
            await self._missing.wait()
            waits = backoff(self._backoff, self._backoff * _MOST_BETWEEN, self._randomness)
            while self.unplaced or self._doubted:
                self._missing.clear()
                topics = self._doubted | {one.topic for one in self.unplaced}
                self._doubted = set()
                try:
                    answer: Metadata | ConsumerError = await self._cluster.refresh(topics)
                except ConsumerError as error:
                    answer = error
                yield answer
                if self.unplaced:
                    await self._pause(next(waits))
            self._missing.clear()

    async def _pause(self, seconds: float) -> None:
        """Wait before the next request, unless a cursor or topic is added."""
        try:
            async with asyncio.timeout(seconds):
                await self._missing.wait()
        except TimeoutError:
            pass
