"""A stream whose records are committed before they are handed out: none ever comes twice."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.streams.batched import BatchedStream
from asyncconsumer.streams.idle import IdleTimeout
from asyncconsumer.streams.stream import Fence, Stream
from asyncconsumer.types import Offset, TopicPartition

_SECONDS_BETWEEN_LOOKS: Final = 0.05

Commit = Callable[[Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, int]]]
"""Returns what was committed, without what is not ours any more."""


class AtMostOnceStream(BatchedStream):
    """Commits a whole chunk, then hands it out. What is handed out counts as finished.

    Who leaves in good order commits back to where it got to; who dies loses the rest of the chunk.
    """

    def __init__(
        self,
        channel: Channel,
        fence: Fence | None = None,
        clock: Callable[[], float] | None = None,
        idle: IdleTimeout | None = None,
        *,
        commit: Commit,
    ) -> None:
        super().__init__(channel, fence, clock, idle)
        self._commit = commit

    async def _before_first(self, chunk: Chunk) -> None:
        done = {chunk.partition: Offset(chunk.next_offset, leader_epoch=chunk.leader_epoch)}
        while self._held is chunk and not await self._commit(done):
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)  # it is lost, and will be taken from us
            await self._waited_at_fence()

    def finished(self) -> dict[TopicPartition, int]:
        """Up to where each was handed out."""
        finished = Stream.finished(self)
        if (held := self._held) is not None:
            at = max(held.records.next_offset, held.offset)
            finished[held.partition] = Offset(at, leader_epoch=held.leader_epoch)
        return finished | self._not_handed_out()

    def _is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        return False
