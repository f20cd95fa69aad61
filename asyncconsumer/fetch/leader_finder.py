"""The leader finder: sleeps while every partition has a leader, asks while one has not."""

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

_MOST_BETWEEN: Final = 2.5  # times the first wait: how long a new leader may stay unnoticed


class LeaderFinder:
    """Knows which cursors have no broker to be read from, and asks until they have one.

    It only learns: who is placed where is decided by whoever iterates over its answers.
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
        """What was learned last, perhaps long ago."""
        return self._cluster.metadata

    def add(self, cursor: Cursor) -> None:
        """It needs a place."""
        self.unplaced[cursor.partition] = cursor
        self._missing.set()

    def discard(self, cursor: Cursor) -> None:
        """It has a place, or needs none."""
        self.unplaced.pop(cursor.partition, None)

    def doubt(self, topics: Iterable[str]) -> None:
        """Their leaders may have moved without telling us: ask once."""
        self._doubted.update(topics)
        if self._doubted:
            self._missing.set()

    async def answers(self) -> AsyncIterator[Metadata | ConsumerError]:
        """What brokers say of the topics in question, or why none did, as often as needed."""
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
        """Wait before asking again, unless somebody new needs an answer."""
        try:
            async with asyncio.timeout(seconds):
                await self._missing.wait()
        except TimeoutError:
            pass
