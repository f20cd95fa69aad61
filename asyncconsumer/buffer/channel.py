"""Where fetchers leave chunks and one stream takes them: bounded by bytes, never by waiting."""

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
    """It ended because there was no more."""


class _Held(set[TopicPartition]):
    """Partitions of which nothing is handed out, and how many bytes of them wait."""

    waiting = 0

    def count(self, size: int) -> None:
        """So many bytes more; or fewer, if it is negative."""
        self.waiting += size


class Channel:
    """The chunks of one stream. All changes are synchronous; only `pop` waits.

    Partitions take turns, each in its own order. Whoever pushes asked `has_room` before it fetched:
    a channel may hold as much as the budget still has free, so that one which nobody reads leaves
    half to a second, a third to the third, and something to everyone. What is on hold does not
    count: its reader may go on with other partitions for as long as it likes.

    What was popped counts as held until `done`, for it is still in memory.
    """

    def __init__(self, budget: Budget) -> None:
        self.fill = 0  # bytes, with what was popped and is not done
        self.peak = 0
        self.pops = 0
        self._budget = budget
        self._waiting: dict[TopicPartition, deque[Chunk | ConsumerError]] = {}
        # those with something, and not held; many may be held at once, each quickly
        self._ready: OrderedDict[TopicPartition, None] = OrderedDict()
        self._held = _Held()
        self._in_hand: dict[Chunk, bool] = {}  # and whether it is still wanted
        self._readable = asyncio.Event()
        self._ending: ConsumerError | None = None
        self._since_yield = 0
        self._interruption: ConsumerError | None = None

    # --- for fetchers ----------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether to fetch more for it."""
        return self._ending is None and self.fill - self._held.waiting < self._budget.free

    def push(self, chunk: Chunk) -> None:
        """Add a chunk. Its bytes are in the budget already; from here on they are the channel's."""
        self._check_open()
        self.fill += chunk.size
        self.peak = max(self.peak, self.fill)
        self._add(chunk.partition, chunk)

    def fail(self, partition: TopicPartition, error: ConsumerError) -> None:
        """Raise this to the reader, after everything good of this partition was read."""
        self._check_open()
        self._add(partition, error)

    def interrupt(self, error: ConsumerError | None) -> None:
        """Raise this to the reader next, before anything else, once; None takes it back."""
        self._interruption = error
        if error is not None:
            self._readable.set()

    def drop(self, partition: TopicPartition) -> int:
        """Forget what waits of a partition, and end what is being read of it; how many chunks."""
        if partition in self._held:
            self._held.count(-self._waiting_bytes(partition))
            self._held.remove(partition)
        for chunk in self._in_hand:
            if chunk.partition == partition:
                chunk.records.close()  # whoever iterates over it gets no further record
                self._in_hand[chunk] = False
        dropped = self._waiting.pop(partition, None)
        if dropped is None:
            return 0  # nearly always: most of thousands of partitions have nothing waiting
        self._ready.pop(partition, None)
        chunks = [one for one in dropped if isinstance(one, Chunk)]
        self._give_back(chunks)
        return len(chunks)

    def hold(self, partition: TopicPartition) -> None:
        """Keep what waits of a partition, and hand none of it out until `release`."""
        if partition not in self._held:
            self._held.add(partition)
            self._held.count(self._waiting_bytes(partition))
            if partition in self._waiting:
                del self._ready[partition]
                self._budget.wake()  # for others there may be room now

    def release(self, partition: TopicPartition) -> None:
        """Hand out a held partition's chunks again."""
        if partition in self._held:
            self._held.remove(partition)
            self._held.count(-self._waiting_bytes(partition))
            if partition in self._waiting:
                self._turn(partition)

    def close(self, error: ConsumerError | None = None) -> None:
        """Let readers come to the end of what is here, then end, or raise the error.

        Harmless when done before: the first reason stays.
        """
        if error is None:
            self.reopen()  # for good is more than for now
        if self._ending is None:
            self._ending = error or ClosedError("the channel was closed")
            self._readable.set()

    def finish(self) -> None:
        """As `close`, because everything that was wanted is here; `reopen` takes it back."""
        self.close(_Finished("all that was wanted was read"))

    def reopen(self) -> None:
        """Something is wanted again, of what had come to its end."""
        if isinstance(self._ending, _Finished):
            self._ending = None

    def clear(self) -> None:
        """Forget everything that waits."""
        for partition in list(self._waiting):
            self.drop(partition)

    # --- for the reader --------------------------------------------------------------------------

    def pop_now(self) -> Chunk | None:
        """The next chunk, or None if there is none at the moment; or the error that is next."""
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
        self.pops += 1
        if isinstance(item, ConsumerError):
            raise item
        self._in_hand[item] = True
        return item

    async def pop(self) -> Chunk | None:
        """The next chunk, or None once the channel is closed and empty. Cancelling loses nothing.

        Data that keeps coming must not starve the other tasks, so it lets them run now and then.
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
        """Let other tasks run if much was popped since they last did."""
        if self._since_yield >= _BYTES_PER_YIELD:
            self._since_yield = 0
            await asyncio.sleep(0)

    def _has_held_data(self) -> bool:
        """Whether something of what is on hold waits: the end comes after it."""
        held = self._held
        return not held.isdisjoint(self._waiting) or any(
            wanted and chunk.partition in held for chunk, wanted in self._in_hand.items()
        )

    def push_back(self, chunk: Chunk) -> None:
        """Have what was popped, and not used up, be the next of its partition again."""
        if self._in_hand.get(chunk):
            del self._in_hand[chunk]
            self._add(chunk.partition, chunk, first=True)
        else:
            self.done(chunk)  # it was dropped meanwhile

    def done(self, chunk: Chunk) -> bool:
        """What was popped is used up; False if it was dropped meanwhile. Harmless when repeated."""
        wanted = self._in_hand.pop(chunk, None)
        if wanted is not None:
            self._give_back([chunk])
        return bool(wanted)

    # --- both ------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether nothing more may be pushed."""
        return self._ending is not None

    @property
    def readable(self) -> bool:
        """Whether its reader could take something at once."""
        return bool(self._ready)

    @property
    def is_due(self) -> bool:
        """Whether its reader has something in hand, or could take something, and has not asked."""
        in_hand = (
            wanted and chunk.partition not in self._held for chunk, wanted in self._in_hand.items()
        )
        return bool(self._ready) or any(in_hand)

    @property
    def motion(self) -> tuple[int, int]:
        """What changes whenever its reader takes something, be it one record of many."""
        return self.pops, sum(chunk.records.next_offset for chunk in self._in_hand)

    @property
    def holds_anything(self) -> bool:
        """Whether something waits, of whatever partition."""
        return bool(self._waiting)

    def __contains__(self, partition: TopicPartition) -> bool:
        """Whether something waits of a partition."""
        return partition in self._waiting

    def _add(
        self, partition: TopicPartition, item: Chunk | ConsumerError, *, first: bool = False
    ) -> None:
        if partition in self._held and isinstance(item, Chunk):
            self._held.count(item.size)
        waiting = self._waiting.get(partition)
        if waiting is not None:
            (waiting.appendleft if first else waiting.append)(item)
            return
        self._waiting[partition] = deque((item,))
        if partition not in self._held:
            self._turn(partition)

    def _waiting_bytes(self, partition: TopicPartition) -> int:
        waiting = self._waiting.get(partition)
        if waiting is None:
            return 0
        return sum(item.size for item in waiting if isinstance(item, Chunk))

    def _turn(self, partition: TopicPartition) -> None:
        self._ready[partition] = None
        self._readable.set()

    def _give_back(self, chunks: list[Chunk]) -> None:
        size = sum(chunk.size for chunk in chunks)
        self.fill -= size
        self._budget.give_back(size)

    def _check_open(self) -> None:
        if self._ending is not None:
            raise ClosedError("the channel is closed")
