"""A stream: reads a channel record by record, in chunks, or as Arrow batches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.errors import ConsumerError
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import COLUMNS, Timestamps, checked_schema, to_arrow
from asyncconsumer.records.pauses import open_next
from asyncconsumer.streams.cancel_safe import CancelSafeIterator
from asyncconsumer.streams.idle import IdleTimeout, Until
from asyncconsumer.streams.reader import Iteration, Reader, Source
from asyncconsumer.types import Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


_SECONDS_BETWEEN_LOOKS: Final = 0.05


class Fence(Protocol):
    """The source of the deadline until which a member certainly owns its partitions."""

    @property
    def deadline(self) -> float:
        """The current deadline, by the loop's clock. A heartbeat may extend it later."""


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class LoopSource(Source, Protocol[T_co]):
    """An async iterator that a `decoding.Loop` iterates over."""

    def __anext__(self) -> Awaitable[T_co]:
        """Return an awaitable for the next item."""


class Stream:
    """A stream of records: ``async for record in stream``, `chunks()` or `arrow()`.

    A reader uses one of these ways and stays with it. Asking for the next record, chunk or batch
    acknowledges the one before. Cancelling the wait for the next one loses nothing.
    """

    def __init__(
        self,
        channel: Channel,
        fence: Fence | None = None,
        clock: Callable[[], float] | None = None,
        idle: IdleTimeout | None = None,
    ) -> None:
        self.channel = channel
        self._idle: IdleTimeout | Until | None = idle
        self._fence = fence
        self._held: Chunk | None = None
        self._unseen: Chunk | None = None  # the held chunk, until it is delivered
        self._as_chunk = False  # the held chunk was delivered as a whole
        self._receipt = -1  # the held chunk is acknowledged up to this offset
        self._reader = Reader(self)
        self._on_hold: set[TopicPartition] = set()
        self._parked: dict[TopicPartition, Chunk] = {}  # partly delivered, then put on hold
        self._finished: dict[TopicPartition, int] = {}
        self._log = RateLimitedLogger(logging.getLogger(__name__))
        self._records = decoding.AsyncRecords(self._refill, clock)
        if fence is not None:
            self._records.deadline = -inf  # so that the fence is asked before the first record

    def __aiter__(self) -> decoding.AsyncRecords:
        return self._records

    def chunks(self) -> CancelSafeIterator[decoding.Records]:
        """Return an iterator over chunks: the records of one partition that one fetch returned.

        A chunk is iterated with a plain ``for``. A large compressed chunk is delivered in several
        parts, and the event loop runs between them.
        """
        return CancelSafeIterator(partial(self._refill, again=False))

    def arrow(
        self,
        *,
        copy: bool = True,
        max_rows: int | None = None,
        columns: Sequence[str] = COLUMNS,
        timestamps: Timestamps = "ms",
    ) -> CancelSafeIterator["pa.RecordBatch"]:
        """Return an iterator over Arrow batches, each of one partition.

        No object is created per record. With ``copy=False`` keys and values are ``binary_view``
        columns that point into the fetch buffers. They keep these buffers alive, and the budget
        does not count them. Spark accepts only copied columns.
        """
        # raises here, before the first record arrives
        checked_schema(columns, copy=copy, max_rows=max_rows, timestamps=timestamps)
        convert = partial(
            to_arrow, copy=copy, max_rows=max_rows, columns=columns, timestamps=timestamps
        )
        return CancelSafeIterator(partial(self._next_arrow, convert))

    async def _next_arrow(
        self, convert: Callable[[decoding.Records], "pa.RecordBatch | None"]
    ) -> "pa.RecordBatch | None":
        while True:
            chunk = self._held
            if chunk is not None and chunk is not self._unseen:
                self._take_receipt()  # for the previous batch of the same chunk
                await open_next(chunk.records)
                await self._waited_at_fence()
                if self._held is chunk and self._is_on_hold(chunk):
                    self._park(chunk)
                if self._held is not None and (batch := convert(chunk.records)) is not None:
                    chunk.records.worked += batch.nbytes
                    return batch
            if await self._refill(again=False) is None:
                return None

    @property
    def is_read(self) -> bool:
        """Whether a task has ever asked for an item."""
        return self._reader.task is not None

    @property
    def is_over(self) -> bool:
        """Whether the reader has reached the end of the stream."""
        return self._reader.at_end

    def iterate(
        self, source: "LoopSource[T]", prepare: Callable[[bool], None]
    ) -> "decoding.Loop[T]":
        """Return the iterator of a loop over a source that takes from this stream.

        `prepare` is called when reading begins. Its argument says whether an item that is in flight
        must be redelivered.
        """
        return decoding.Loop(source, Iteration(self._reader, source, prepare))

    def iteration(self, source: Source, prepare: Callable[[bool], None]) -> Iteration:
        """Return an iteration for callers without a loop. They call `begin` before each item."""
        return Iteration(self._reader, source, prepare)

    def waiting(self) -> AbstractContextManager[None]:
        """Refuse other readers while the next item is being prepared."""
        return self._reader.waiting()

    @property
    def is_unacknowledged(self) -> bool:
        """Whether a delivered record is not acknowledged yet."""
        held = self._held
        if held is None or held is self._unseen:
            return False
        return self._as_chunk or held.records.next_offset > max(self._receipt, held.offset)

    def unacknowledged(self) -> dict[TopicPartition, int]:
        """Detach the reader and return the offsets from which to redeliver.

        Only partitions with delivered records that are not acknowledged are in the result.
        """
        task, acknowledged = self._reader.detach(), self.finished()
        taken = {tp: Stream.position(self, tp) for tp in acknowledged}
        again = {tp: at for tp, at in acknowledged.items() if at < (taken[tp] or at)}
        if self._as_chunk and (held := self._held) is not None and held is not self._unseen:
            again[held.partition] = acknowledged[held.partition]
        if again:
            self._log.warning(
                "delivering again from %s: %s did not acknowledge it",
                ", ".join(f"{tp}@{at}" for tp, at in again.items()),
                "its reader" if task is None else f"task {task.get_name()!r}",
            )
        return again

    def leftover(self, *, whole: bool) -> dict[TopicPartition, int]:
        """Return the offset from which to fetch the rest of a partly read chunk again.

        A loop over records continues within a chunk that was read as records. No other loop can.
        """
        held = self._held
        if held is None or held is self._unseen:
            return {}
        if self._records.current is held.records and not whole:
            return {}
        return {held.partition: self.finished()[held.partition]}

    def begin(self, partition: TopicPartition, start: int) -> None:
        """Prepare to read a partition that is routed to this stream.

        `start` is the committed offset, EARLIEST or LATEST.
        """

    def finished(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset after the last acknowledged record.

        This is the offset that may be committed. The record delivered last is not acknowledged.
        """
        finished = dict(self._finished)
        held = self._held
        if held is not None:
            records, done = self._records, max(held.offset, self._receipt)
            if records.current is held.records and records.last_offset >= held.offset:
                # a request that was cancelled acknowledges the record before it, too
                read = records.last_offset if records.in_hand else held.records.next_offset
                done = max(done, read)
            finished[held.partition] = Offset(done, leader_epoch=held.leader_epoch)
        return finished

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last delivered record, or None if there is none."""
        if self._held is not None and self._held.partition == partition:
            return self._held.records.next_offset
        return self._finished.get(partition)

    @property
    def in_hand(self) -> object:
        """The chunk of the record delivered last, as an argument for `still_owns`."""
        return self._held

    async def still_owns(self, in_hand: object) -> bool:
        """Wait until ownership is certain, and return whether the chunk is still held.

        Callers that await something before they deliver a record use this. The partition may be
        lost meanwhile.
        """
        return await self.is_certain() and self._held is in_hand

    async def is_certain(self) -> bool:
        """Wait until this member certainly owns its partitions.

        Return False if the channel was closed, after which this is never certain again.
        """
        now = asyncio.get_running_loop().time
        while self._fence is not None and now() >= self._fence.deadline:
            if self.channel.closed:
                return False
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return True

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver nothing more of these partitions, also of the held chunk, until `release`."""
        self._on_hold.update(partitions)
        for one in partitions:
            self.channel.hold(one)
        if self._held is not None and self._held.partition in self._on_hold:
            self._records.deadline = -inf  # so that the next record is requested through `_refill`

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver records of these partitions again."""
        self._on_hold.difference_update(partitions)
        for one in partitions:
            if (chunk := self._parked.pop(one, None)) is not None:
                self.channel.push_back(chunk)
            self.channel.release(one)

    async def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until the delivered records of these partitions, on hold, are acknowledged.

        Return at once if the reading task has ended or is the current task, because neither
        will ask for the next item.
        """
        while self._is_busy_with(partitions) and self._reader.will_ask:
            self._reader.asked.clear()
            await self._reader.asked.wait()

    def acknowledge_by_reader(self) -> None:
        """Acknowledge everything delivered if the current task is the one that reads."""
        if self._reader.is_current:
            self.acknowledge()

    def acknowledge_at_exit(self) -> None:
        """Acknowledge delivered items when the ``async with`` block ends without an error."""
        self._reader.exit()

    def acknowledge(self) -> None:
        """Count everything delivered as processed."""
        self._take_receipt()

    def _take_receipt(self) -> None:
        if self._held is not None and self._held is not self._unseen:
            self._receipt = self._held.records.next_offset
            self._as_chunk = False
        self._reader.acknowledge()

    def _is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        held = self._held
        return (
            held is not None
            and held.partition in partitions
            and held.records.next_offset > max(self._receipt, held.offset)
        )

    def forget(self, partition: TopicPartition) -> None:
        """Drop all state of a partition that another member owns now.

        Nothing is committed for it any more.
        """
        self._finished.pop(partition, None)
        self._on_hold.discard(partition)
        if (chunk := self._parked.pop(partition, None)) is not None:
            chunk.records.close()
            self.channel.done(chunk)
        if self._held is not None and self._held.partition == partition:
            self.drop()

    def drop(self) -> None:
        """Close the held chunk without acknowledging it."""
        if self._held is not None:
            self._let_go(self._held)

    def interrupt(self, error: ConsumerError | None) -> None:
        """Raise `error` once where the reader waits for the next item. None withdraws it."""
        self.channel.interrupt(error)

    async def _refill(self, *, again: bool = True) -> decoding.Records | None:
        """Return the next records, or the held ones again if their delivery had to wait.

        Callers that read whole chunks pass ``again=False``. For them the next request
        acknowledges the whole chunk, which must not be returned twice.
        """
        with self._reader.waiting():
            return await self._refilled(again=again)

    async def _refilled(self, *, again: bool) -> decoding.Records | None:
        held = self._held
        self._reader.attach()
        if held is not None and held is not self._unseen and await self._asked_after(held, again):
            return held.records
        while (chunk := self._unseen or await self._next()) is not None:
            self._held = self._unseen = chunk
            if not again:
                await open_next(chunk.records)
            self._receipt = chunk.records.next_offset
            await self._waited_at_fence()
            if self._held is chunk:
                await self._before_first(chunk)
            if self._held is not chunk:
                continue  # the partition was lost meanwhile, and its chunk dropped
            if not self._is_on_hold(chunk):
                self._unseen, self._as_chunk = None, not again
                return chunk.records
            self._park(chunk)
        self._reader.mark_ended()
        return None

    async def _asked_after(self, held: Chunk, again: bool) -> bool:  # noqa: FBT001 - see _refill
        """Acknowledge the delivered part of a chunk; return whether to deliver from it again.

        A chunk that paused stays held, because its remaining records are next.
        """
        self._take_receipt()
        late = await self._waited_at_fence()
        if self._held is not held:
            return False
        paused = not again and bool(held.records.paused)
        if (again or paused) and self._is_on_hold(held):
            self._park(held)
        elif again and late:
            return True
        elif paused:
            self._unseen = held
        elif self._let_go(held):
            done = Offset(held.next_offset, leader_epoch=held.leader_epoch)
            self._finished[held.partition] = done
        return False

    async def _before_first(self, chunk: Chunk) -> None:
        """Do what must precede the delivery of a chunk. Subclasses override this."""

    def _is_on_hold(self, chunk: Chunk) -> bool:
        return chunk.partition in self._on_hold

    def _park(self, chunk: Chunk) -> None:
        done = max(chunk.records.next_offset, chunk.offset)
        self._finished[chunk.partition] = Offset(done, leader_epoch=chunk.leader_epoch)
        self._parked[chunk.partition] = chunk
        self._held = self._unseen = None
        self._reader.asked.set()

    async def _next(self) -> Chunk | None:
        if self._idle is None:
            return await self.channel.pop()
        return await self._idle.pop(self.channel)

    async def _waited_at_fence(self) -> bool:
        """Wait until records may be delivered; return whether the last deadline had passed."""
        if self._fence is None:
            late, self._records.deadline = self._records.deadline == -inf, inf
            return late
        now = asyncio.get_running_loop().time
        late = now() >= min(self._records.deadline, self._fence.deadline)
        while now() >= self._fence.deadline:
            if self.channel.closed:
                self.drop()  # ownership is never certain again
                break
            # rare, and no event announces a heartbeat response
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        # the partition may be lost before the deadline, so look again soon
        self._records.deadline = min(self._fence.deadline, now() + _SECONDS_BETWEEN_LOOKS)
        return late

    def _let_go(self, chunk: Chunk) -> bool:
        """Release a chunk; return whether it was not taken back before."""
        chunk.records.close()
        self._held = self._unseen = None
        return self.channel.done(chunk)
