"""Which stream gets which partition."""

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
    """Which stream reads which topic: each of a static subscription has its own, a filter's all."""

    def __init__(self, streams: Mapping[str, list[Stream]] | Sequence[Stream]) -> None:
        # told apart once, and not for each of thousands of partitions
        self._by_topic = streams if isinstance(streams, Mapping) else {}
        self._of_all = None if isinstance(streams, Mapping) else streams

    def of(self, partition: TopicPartition, number: int) -> Stream:
        """The stream of that number that reads a partition."""
        if self._of_all is not None:
            return self._of_all[number]
        return self._by_topic[partition.topic][number]

    def all(self) -> Sequence[Stream]:
        """All there are."""
        if self._of_all is not None:
            return self._of_all
        return [stream for of_topic in self._by_topic.values() for stream in of_topic]

    def end(self, partition: TopicPartition) -> None:
        """Streams stay when partitions go."""

    def close(self, error: ConsumerError | None = None) -> None:
        """Let readers come to the end of what is there; then end, or raise the error."""
        for stream in self.all():
            stream.channel.close(error)


class SharedRoutes(TopicRoutes):
    """Some streams that share what there is: a new partition goes to the one with the fewest.

    Not to one whose reader has come to its end, as long as there is another.
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        super().__init__(streams)
        self._places: dict[TopicPartition, Stream] = {}
        self._loads: Counter[Stream] = Counter()  # how many partitions each has

    def of(self, partition: TopicPartition, number: int) -> Stream:
        """Where it is, or from now on will be."""
        if partition not in self._places:
            stream = min(self.all(), key=lambda one: (one.is_over, self._loads[one]))
            self._places[partition] = stream
            self._loads[stream] += 1
        return self._places[partition]

    def end(self, partition: TopicPartition) -> None:
        """There is a place again."""
        if (stream := self._places.pop(partition, None)) is not None:
            self._loads[stream] -= 1


class PartitionRoutes(Generic[S]):
    """A stream of its own for each partition, from when it is ours until it is not."""

    def __init__(self, open_stream: Callable[[], S]) -> None:
        self._open = open_stream
        self._streams: dict[TopicPartition, S] = {}
        self._new: deque[tuple[TopicPartition, S]] = deque()
        self._bell = asyncio.Event()
        self._ending: ConsumerError | None = None

    def of(self, partition: TopicPartition, number: int) -> S:
        """Its stream, which it gets when it is asked for first."""
        stream = self._streams.get(partition)
        if stream is None:
            stream = self._streams[partition] = self._open()
            if self._ending is not None:
                stream.channel.close()
            self._new.append((partition, stream))
            self._bell.set()
        return stream

    def all(self) -> Collection[S]:
        """Those of the partitions that are ours."""
        return list(self._streams.values())

    def end(self, partition: TopicPartition) -> None:
        """It is not ours any more: whoever reads it comes to the end."""
        if (stream := self._streams.pop(partition, None)) is not None:
            stream.channel.close()

    def close(self, error: ConsumerError | None = None) -> None:
        """As all streams, and there will be no further ones."""
        self._ending = self._ending or error or ClosedError("the consumer was closed")
        self._bell.set()
        for stream in self._streams.values():
            stream.channel.close(error)

    def opened(self) -> AsyncIterator[tuple[TopicPartition, S]]:
        """Each as it appears; those that are gone again before somebody asks are left out."""
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
            self._bell.clear()
            await self._bell.wait()
