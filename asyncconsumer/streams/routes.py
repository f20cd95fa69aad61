"""The routes of a consumer: which stream reads which partition."""

import asyncio
import copy
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from asyncconsumer.errors import ClosedError, ConsumerError
from asyncconsumer.streams.cancel_safe import CancelSafeIterator
from asyncconsumer.streams.stream import Stream
from asyncconsumer.types import TopicPartition

S = TypeVar("S", bound=Stream)


class TopicRoutes:
    """The streams of a subscription, which exist as long as the subscription.

    Each topic has its own streams, or all topics use the same ones.
    """

    def __init__(self, streams: Mapping[str, list[Stream]] | Sequence[Stream]) -> None:
        # decided once here, because `of` is called for each of thousands of partitions
        self._by_topic = streams if isinstance(streams, Mapping) else {}
        self._of_all = None if isinstance(streams, Mapping) else streams

    def of(self, partition: TopicPartition, number: int) -> Stream:
        """Return the stream that reads the partition. `number` is its index among the streams.

        If each topic has its own streams, it is the index among those of the partition's topic.
        """
        if self._of_all is not None:
            return self._of_all[number]
        return self._by_topic[partition.topic][number]

    def all(self) -> Sequence[Stream]:
        """Return all streams."""
        if self._of_all is not None:
            return self._of_all
        return [stream for of_topic in self._by_topic.values() for stream in of_topic]

    def end(self, partition: TopicPartition) -> None:
        """Do nothing, because these streams outlive the assignment of their partitions."""

    def close(self, error: ConsumerError | None = None) -> None:
        """Close all streams. Each ends or raises the error after its buffered records."""
        for stream in self.all():
            stream.channel.close(error)


class SharedRoutes(TopicRoutes):
    """Streams that divide the assignment. The stream with the fewest partitions gets a new one.

    A stream whose reader has reached its end gets a partition only if all streams have ended.
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        super().__init__(streams)
        self._places: dict[TopicPartition, Stream] = {}
        self._loads: Counter[Stream] = Counter()  # the number of partitions of each stream

    def of(self, partition: TopicPartition, number: int) -> Stream:
        """Return the stream that reads the partition. The first call chooses it.

        `number` is not used.
        """
        if partition not in self._places:
            stream = min(self.all(), key=lambda stream: (stream.is_over, self._loads[stream]))
            self._places[partition] = stream
            self._loads[stream] += 1
        return self._places[partition]

    def end(self, partition: TopicPartition) -> None:
        """Remove the route of a partition that was revoked or lost."""
        if (stream := self._places.pop(partition, None)) is not None:
            self._loads[stream] -= 1


class PartitionRoutes(Generic[S]):
    """A separate stream for each assigned partition, from its assignment until its revocation."""

    def __init__(self, open_stream: Callable[[], S]) -> None:
        self._open = open_stream
        self._streams: dict[TopicPartition, S] = {}
        self._new: deque[tuple[TopicPartition, S]] = deque()
        self._changed = asyncio.Event()
        self._ending: ConsumerError | None = None

    def of(self, partition: TopicPartition, number: int) -> S:
        """Return the stream that reads the partition. The first call opens it.

        `number` is not used.
        """
        stream = self._streams.get(partition)
        if stream is None:
            stream = self._streams[partition] = self._open()
            if self._ending is not None:
                stream.channel.close()
            self._new.append((partition, stream))
            self._changed.set()
        return stream

    def all(self) -> Collection[S]:
        """Return the streams of the assigned partitions."""
        return list(self._streams.values())

    def end(self, partition: TopicPartition) -> None:
        """Close the stream of a partition that is not assigned any more."""
        if (stream := self._streams.pop(partition, None)) is not None:
            stream.channel.close()

    def close(self, error: ConsumerError | None = None) -> None:
        """Close all streams. Streams that are opened after this are closed, too."""
        self._ending = self._ending or error or ClosedError("the consumer was closed")
        self._changed.set()
        for stream in self._streams.values():
            stream.channel.close(error)

    def opened(self) -> AsyncIterator[tuple[TopicPartition, S]]:
        """Return an iterator over newly opened streams and their partitions.

        A stream that is closed before the iterator reaches it is left out.
        """
        return CancelSafeIterator(self._next)

    async def _next(self) -> tuple[TopicPartition, S] | None:
        while True:
            while self._new:
                partition, stream = self._new.popleft()
                if self._streams.get(partition) is stream:
                    return partition, stream
            if isinstance(self._ending, ClosedError):
                return None
            if self._ending is not None:
                raise copy.copy(self._ending) from self._ending.__cause__ or self._ending
            self._changed.clear()
            await self._changed.wait()
