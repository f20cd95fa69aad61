"""A queue of chunks from fetchers to one stream, bounded by bytes. `push` never waits."""

import asyncio
import copy
from collections import OrderedDict, deque
from typing import Final

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.errors import ClosedError, ConsumerError
from asyncconsumer.types import TopicPartition

_BYTES_PER_YIELD: Final = 256 * 2**10
_POPS_PER_YIELD: Final = 64


class _Finished(ClosedError):
    """The channel was closed because all requested records were fetched."""


class _Held(set[TopicPartition]):
    """The partitions on hold, and the total bytes of their buffered chunks in `waiting`."""

    waiting = 0

    def add_bytes(self, size: int) -> None:
        """Add `size`, which may be negative, to the buffered bytes of these partitions."""
        self.waiting += size


class Channel:
    """The buffered chunks of one stream. A chunk has the records of one partition from one fetch.

    Chunks are popped from partitions in turn, and in order within a partition. Only `pop` waits.

    Fetchers call `has_room` before they fetch. A channel may hold as many bytes as the consumer's
    budget has free. So one unread channel fills half of the budget, and two fill a third each. If
    nothing is free, a channel without data may use its share of the budget. Chunks of partitions
    on hold do not count, because the reader may not read them for a long time. A popped chunk
    counts until `done`, because it is still in memory.
    """

    def __init__(self, budget: Budget) -> None:
        self.buffered_bytes = 0  # includes popped chunks that are not done
        self.peak = 0
        self.pop_count = 0
        self._budget = budget
        self._waiting: dict[TopicPartition, deque[Chunk | ConsumerError]] = {}
        # partitions with chunks and not on hold; ordered, with fast removal
        self._ready: OrderedDict[TopicPartition, None] = OrderedDict()
        self._held = _Held()
        # popped chunks; False if the chunk was dropped meanwhile
        self._popped: dict[Chunk, bool] = {}
        self._readable = asyncio.Event()
        self._ending: ConsumerError | None = None
        self._since_yield = 0
        self._interruption: ConsumerError | None = None

    # --- for fetchers ----------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return whether fetchers may fetch more for this channel."""
        unread = self.buffered_bytes - self._held.waiting
        return self._ending is None and (unread < self._budget.free or self.has_share())

    def has_share(self) -> bool:
        """Return whether fetchers may use the bytes that are kept for a channel without data.

        They may if this channel has no unread data, and the memory limit has room for these bytes.
        """
        unread = self.buffered_bytes - self._held.waiting
        return self._ending is None and not unread and self._budget.has_share

    def push(self, chunk: Chunk) -> None:
        """Add a chunk. The caller has counted its bytes as used in the budget.

        The channel returns these bytes to the budget when the chunk is done or dropped.
        """
        self._check_open()
        self.buffered_bytes += chunk.size
        self.peak = max(self.peak, self.buffered_bytes)
        self._add(chunk.partition, chunk)

    def fail(self, partition: TopicPartition, error: ConsumerError) -> None:
        """Let `pop` raise `error` after the buffered chunks of the partition."""
        self._check_open()
        self._add(partition, error)

    def interrupt(self, error: ConsumerError | None) -> None:
        """Let the next `pop` raise `error`, before any chunk.

        None removes the error of an earlier call, if it was not raised yet.
        """
        self._interruption = error
        if error is not None:
            self._readable.set()

    def drop(self, partition: TopicPartition) -> int:
        """Drop the buffered chunks of a partition, and close a chunk of it that was popped.

        Return the number of dropped buffered chunks.
        """
        if partition in self._held:
            self._held.add_bytes(-self._waiting_bytes(partition))
            self._held.remove(partition)
        for chunk in self._popped:
            if chunk.partition == partition:
                chunk.records.close()  # iterators deliver no further record
                self._popped[chunk] = False
        dropped = self._waiting.pop(partition, None)
        if dropped is None:
            return 0  # the usual case: most of thousands of partitions have no chunks
        self._ready.pop(partition, None)
        chunks = [item for item in dropped if isinstance(item, Chunk)]
        self._give_back(chunks)
        return len(chunks)

    def hold(self, partition: TopicPartition) -> None:
        """Put a partition on hold: its chunks are kept, and none is popped until `release`."""
        if partition not in self._held:
            self._held.add(partition)
            self._held.add_bytes(self._waiting_bytes(partition))
            if partition in self._waiting:
                del self._ready[partition]
                self._budget.wake()  # other partitions may have room now

    def release(self, partition: TopicPartition) -> None:
        """End the hold of a partition, so that its chunks are popped again."""
        if partition in self._held:
            self._held.remove(partition)
            self._held.add_bytes(-self._waiting_bytes(partition))
            if partition in self._waiting:
                self._mark_ready(partition)

    def close(self, error: ConsumerError | None = None) -> None:
        """Accept no more chunks.

        After the buffered chunks, `pop` raises `error`, or returns None if there is no error. Later
        calls have no effect. But a call without an error replaces an earlier `finish`.
        """
        if error is None:
            self.reopen()
        if self._ending is None:
            self._ending = error or ClosedError("the channel was closed")
            self._readable.set()

    def finish(self) -> None:
        """Close the channel because all requested records were fetched. `reopen` reverts this."""
        self.close(_Finished("all requested records were read"))

    def reopen(self) -> None:
        """Revert `finish`, because more records are to be fetched."""
        if isinstance(self._ending, _Finished):
            self._ending = None

    def clear(self) -> None:
        """Drop all buffered chunks."""
        for partition in list(self._waiting):
            self.drop(partition)

    # --- for the reader --------------------------------------------------------------------------

    def pop_now(self) -> Chunk | None:
        """Return the next chunk, or None if none is ready. If an error is next, raise it."""
        if self._interruption is not None:
            error, self._interruption = self._interruption, None
            raise error
        if not self._ready:
            return None
        partition, _ = self._ready.popitem(last=False)
        waiting = self._waiting[partition]
        item = waiting.popleft()
        if waiting:
            self._ready[partition] = None
        else:
            del self._waiting[partition]
        self.pop_count += 1
        if isinstance(item, ConsumerError):
            raise item
        self._popped[item] = True
        return item

    async def pop(self) -> Chunk | None:
        """Return the next chunk, or None if the channel is closed and empty.

        If an error is next, raise it. A cancelled wait loses no chunk. If data arrives
        continuously, `pop` sometimes yields to the event loop, so that other tasks run.
        """
        await self.yield_after_much()
        while True:
            if (chunk := self.pop_now()) is not None:
                self._since_yield += chunk.size + _BYTES_PER_YIELD // _POPS_PER_YIELD
                return chunk
            finished = isinstance(self._ending, _Finished)
            if isinstance(self._ending, ClosedError) and not (finished and self._has_held_data()):
                return None
            if self._ending is not None and not finished:
                raise copy.copy(self._ending) from self._ending.__cause__ or self._ending
            self._readable.clear()
            await self._readable.wait()
            self._since_yield = 0

    async def yield_after_much(self) -> None:
        """Yield to the event loop if many chunks or bytes were popped since the last yield."""
        if self._since_yield >= _BYTES_PER_YIELD:
            self._since_yield = 0
            await asyncio.sleep(0)

    def _has_held_data(self) -> bool:
        """Return whether a partition on hold has chunks.

        A finished channel must deliver these chunks before it ends.
        """
        held = self._held
        return not held.isdisjoint(self._waiting) or any(
            is_current and chunk.partition in held for chunk, is_current in self._popped.items()
        )

    def push_back(self, chunk: Chunk) -> None:
        """Put a popped chunk back as the next one of its partition."""
        if self._popped.get(chunk):
            del self._popped[chunk]
            self._add(chunk.partition, chunk, first=True)
        else:
            self.done(chunk)  # the chunk was dropped meanwhile

    def done(self, chunk: Chunk) -> bool:
        """Return the bytes of a popped chunk to the budget, because its records were read.

        Return False if the chunk was dropped, or was done already.
        """
        is_current = self._popped.pop(chunk, None)
        if is_current is not None:
            self._give_back([chunk])
        return bool(is_current)

    # --- both ------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the channel accepts no more chunks."""
        return self._ending is not None

    @property
    def readable(self) -> bool:
        """Whether a chunk can be popped at once."""
        return bool(self._ready)

    @property
    def is_due(self) -> bool:
        """Whether the reader has a buffered or popped chunk of a partition that is not on hold."""
        popped = (
            is_current and chunk.partition not in self._held
            for chunk, is_current in self._popped.items()
        )
        return bool(self._ready) or any(popped)

    @property
    def progress_marker(self) -> tuple[int, int]:
        """A value that changes whenever the reader takes a chunk or a record."""
        return self.pop_count, sum(chunk.records.next_offset for chunk in self._popped)

    @property
    def holds_anything(self) -> bool:
        """Whether a chunk or an error is buffered."""
        return bool(self._waiting)

    def __contains__(self, partition: TopicPartition) -> bool:
        """Return whether a chunk or an error of the partition is buffered."""
        return partition in self._waiting

    def first_waiting(self, partition: TopicPartition) -> Chunk | None:
        """Return the oldest buffered chunk of a partition, or None if it has none."""
        waiting = self._waiting.get(partition, ())
        return next((item for item in waiting if isinstance(item, Chunk)), None)

    def _add(
        self, partition: TopicPartition, item: Chunk | ConsumerError, *, first: bool = False
    ) -> None:
        if partition in self._held and isinstance(item, Chunk):
            self._held.add_bytes(item.size)
        waiting = self._waiting.get(partition)
        if waiting is not None:
            (waiting.appendleft if first else waiting.append)(item)
            return
        self._waiting[partition] = deque((item,))
        if partition not in self._held:
            self._mark_ready(partition)

    def _waiting_bytes(self, partition: TopicPartition) -> int:
        waiting = self._waiting.get(partition)
        if waiting is None:
            return 0
        return sum(item.size for item in waiting if isinstance(item, Chunk))

    def _mark_ready(self, partition: TopicPartition) -> None:
        self._ready[partition] = None
        self._readable.set()

    def _give_back(self, chunks: list[Chunk]) -> None:
        size = sum(chunk.size for chunk in chunks)
        self.buffered_bytes -= size
        self._budget.give_back(size)

    def _check_open(self) -> None:
        if self._ending is not None:
            raise ClosedError("the channel is closed")
