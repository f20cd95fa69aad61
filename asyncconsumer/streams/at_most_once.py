"""A stream whose records are committed before they are handed out: none ever comes twice."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from asyncconsumer.chunks.channel import Channel
from asyncconsumer.chunks.chunk import Chunk
from asyncconsumer.model import Offset, TopicPartition
from asyncconsumer.streams.batched import Batched
from asyncconsumer.streams.stream import Fence, Idle, Stream

Commit = Callable[[Mapping[TopicPartition, int]], Awaitable[object]]


class AtMostOnce(Batched):
    """Commits a whole chunk, then hands it out. What is handed out counts as finished.

    Who leaves in good order commits back to where it got to; who dies loses the rest of the chunk.
    """

    def __init__(
        self,
        channel: Channel,
        fence: Fence | None = None,
        clock: Callable[[], float] | None = None,
        idle: Idle | None = None,
        *,
        commit: Commit,
    ) -> None:
        super().__init__(channel, fence, clock, idle)
        self._commit = commit

    async def _before_first(self, chunk: Chunk) -> None:
        await self._commit(
            {chunk.partition: Offset(chunk.next_offset, leader_epoch=chunk.leader_epoch)}
        )

    def finished(self) -> dict[TopicPartition, int]:
        """Up to where each was handed out."""
        finished = Stream.finished(self)
        if (held := self._held) is not None:
            at = max(held.records.next_offset, held.offset)
            finished[held.partition] = Offset(at, leader_epoch=held.leader_epoch)
        return finished | self._not_handed_out()

    def _is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        return False
