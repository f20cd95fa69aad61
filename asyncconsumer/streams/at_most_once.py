"""A stream that commits records before it delivers them, so that none is redelivered."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from asyncconsumer.aio.wait import POLL_SECONDS
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.streams.batched import BatchedStream, first_offsets
from asyncconsumer.streams.idle import IdleTimeout
from asyncconsumer.streams.stream import Fence, Stream
from asyncconsumer.types import Offset, TopicPartition

CommitOffsets = Callable[[Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, int]]]
"""Commits offsets and returns those committed, without partitions that are not owned any more."""


class AtMostOnceStream(BatchedStream):
    """A stream that commits the end offset of a chunk before it delivers the chunk's records.

    A chunk has the records of one partition from one fetch. A delivered record counts as processed.
    A member that leaves the group commits the offset after the last delivered record. If a member
    crashes instead, the rest of its chunk is not delivered to any member.
    """

    def __init__(
        self,
        channel: Channel,
        fence: Fence | None = None,
        clock: Callable[[], float] | None = None,
        idle: IdleTimeout | None = None,
        *,
        commit: CommitOffsets,
    ) -> None:
        super().__init__(channel, fence, clock, idle)
        self._commit = commit

    async def _before_first(self, chunk: Chunk) -> None:
        done = {chunk.partition: Offset(chunk.next_offset, leader_epoch=chunk.leader_epoch)}
        while self._delivery.chunk is chunk and not await self._commit(done):
            await asyncio.sleep(POLL_SECONDS)  # the partition is lost; a call of `forget` follows
            await self._waited_at_fence()

    def finished(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset after the last delivered record."""
        finished = Stream.finished(self)
        if (chunk := self._delivery.chunk) is not None:
            offset = max(chunk.records.next_offset, chunk.offset)
            finished[chunk.partition] = Offset(offset, leader_epoch=chunk.leader_epoch)
        return finished | first_offsets(self._batch)

    def _is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        return False
