"""A stream that commits records before it delivers them, so that none is redelivered."""

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
"""Commits offsets and returns those committed, without partitions that are not owned any more."""


class AtMostOnceStream(BatchedStream):
    """A stream that commits a whole chunk, then delivers it. Delivery acknowledges a record.

    A member that leaves normally commits the offset that it reached, which may be smaller. A
    member that crashes loses the rest of the chunk.
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
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)  # the partition is lost; `forget` follows
            await self._waited_at_fence()

    def finished(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset after the last delivered record."""
        finished = Stream.finished(self)
        if (held := self._held) is not None:
            at = max(held.records.next_offset, held.offset)
            finished[held.partition] = Offset(at, leader_epoch=held.leader_epoch)
        return finished | self._not_handed_out()

    def _is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        return False
