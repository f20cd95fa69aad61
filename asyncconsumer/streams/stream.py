"""A stream of buffered chunks, read record by record, in chunks, or as Arrow batches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol, TypeVar

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.wait import POLL_SECONDS
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.errors import ConsumerError, CorruptRecords
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import COLUMNS, Timestamps, checked_schema, to_arrow
from asyncconsumer.records.pauses import open_next
from asyncconsumer.streams.acknowledgement import Iteration, Reader, Source
from asyncconsumer.streams.cancel_safe import CancelSafeIterator
from asyncconsumer.streams.delivery import Delivery
from asyncconsumer.streams.idle import IdleTimeout, Until
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class Fence(Protocol):
    """The interface of a membership that knows until when it certainly owns its partitions."""

    @property
    def deadline(self) -> float:
        """The loop time until which the partitions are certainly owned.

        A heartbeat may extend it.
        """


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class LoopSource(Source, Protocol[T_co]):
    """An async iterator that a `decoding.Loop` iterates over."""

    def __anext__(self) -> Awaitable[T_co]:
        """Return an awaitable for the next item."""


class Stream:
    """A stream of records: ``async for record in stream``, `chunks()` or `arrow()`.

    A reader uses only one of these ways. Asking for the next record, chunk or batch acknowledges
    the one before. Cancelling such a request loses nothing.
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
        self._reader = Reader(self)
        self._on_hold: set[TopicPartition] = set()
        self._parked: dict[TopicPartition, Chunk] = {}  # partly delivered, then put on hold
        self.translate: Callable[[ConsumerError], Exception] | None = None  # for other APIs
        self._log = RateLimitedLogger(logging.getLogger(__name__))
        self._records = decoding.AsyncRecords(self._refill, clock)
        self._delivery = Delivery(self._records)
        if fence is not None:
            self._records.deadline = -inf  # check the ownership before the first record

    def __aiter__(self) -> decoding.AsyncRecords:
        return self._records

    def build_messages(
        self,
        builder: decoding.MessageBuilder | None,
        unreadable: Callable[[Exception], Awaitable[object] | None] | None = None,
    ) -> None:
        """Deliver the results of `builder` in place of records, except as chunks and Arrow batches.

        `unreadable` is called with the error of an unreadable record or batch. It returns None to
        raise the error, or an awaitable to await before the record is skipped.
        """
        self._records.builder = builder
        self._records.unreadable = unreadable

    @property
    def remaining(self) -> int | None:
        """The number of records that may still be delivered, or None without a limit."""
        return None if self._records.remaining < 0 else self._records.remaining

    @remaining.setter
    def remaining(self, remaining: int | None) -> None:
        self._records.remaining = -1 if remaining is None else remaining

    def chunks(self) -> CancelSafeIterator[decoding.Records]:
        """Return an iterator over chunks. A chunk has the records of a partition from one fetch.

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
            chunk = self._delivery.begun
            if chunk is not None:
                self._acknowledge_delivered()  # the previous batch of the same chunk
                await open_next(chunk.records)
                await self._waited_at_fence()
                if self._delivery.chunk is chunk and self._is_on_hold(chunk):
                    self._park()
                if self._delivery.chunk is not None:
                    try:
                        batch = convert(chunk.records)
                    except CorruptRecords as error:
                        recover = self._records.recover
                        if recover is None or not recover(error):
                            raise
                        continue  # the records are fetched again
                    if batch is not None:
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
        """Return the iterator for a loop over `source`, which takes its items from this stream.

        `prepare` is called when reading begins. Its argument says whether an item that is in flight
        must be redelivered.
        """
        return decoding.Loop(source, Iteration(self._reader, source, prepare))

    def iteration(self, source: Source, prepare: Callable[[bool], None]) -> Iteration:
        """Return an iteration for callers without a loop. They call `begin` before each item."""
        return Iteration(self._reader, source, prepare)

    @property
    def is_waiting(self) -> bool:
        """Whether a task waits for the next record."""
        return self._records.is_waiting

    @property
    def is_unacknowledged(self) -> bool:
        """Whether a delivered record is not acknowledged yet."""
        return self._delivery.is_unacknowledged

    def unacknowledged(self) -> dict[TopicPartition, int]:
        """Detach the reading task. Return the offsets at which redelivery begins.

        Only partitions with delivered records that are not acknowledged are in the result.
        """
        task, acknowledged = self._reader.detach(), self.finished()
        taken = {tp: Stream.position(self, tp) for tp in acknowledged}
        again = {
            tp: offset for tp, offset in acknowledged.items() if offset < (taken[tp] or offset)
        }
        if (whole := self._delivery.whole_partition) is not None:
            again[whole] = acknowledged[whole]
        if again:
            self._log.warning(
                "redelivering from %s, because %s did not acknowledge these records",
                ", ".join(f"{tp}@{offset}" for tp, offset in again.items()),
                "its reader" if task is None else f"task {task.get_name()!r}",
            )
        return again

    def leftover(self, *, whole: bool) -> dict[TopicPartition, int]:
        """Return the partition and offset from which the next loop must fetch, or an empty dict.

        The rest of a partly read chunk must be fetched again, unless the next loop can continue in
        the chunk. Only a loop over records can, and only if the chunk was read record by record.
        `whole` means that the next loop is over chunks.
        """
        chunk = self._delivery.begun
        if chunk is None or (self._records.current is chunk.records and not whole):
            return {}
        return {chunk.partition: self.finished()[chunk.partition]}

    def begin(self, partition: TopicPartition, start: int) -> None:
        """Prepare to read a partition that was assigned to this stream.

        `start` is the committed offset, EARLIEST or LATEST. The base class does nothing.
        """

    def finished(self) -> dict[TopicPartition, int]:
        """Return the offset after the last acknowledged record of each partition.

        This is the offset that may be committed. The record delivered last is not acknowledged.
        """
        return self._delivery.finished()

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last delivered record of a partition.

        Return None if no record of it was delivered.
        """
        return self._delivery.position(partition)

    def oldest_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the timestamp, in ms, of the partition's oldest chunk that is not acknowledged.

        The timestamp of a chunk is that of its first record, or -1 if that record has none. Return
        None if all buffered chunks are acknowledged.
        """
        chunk = self._delivery.unacknowledged_chunk
        if chunk is None or chunk.partition != partition:
            chunk = self._parked.get(partition) or self.channel.first_waiting(partition)
        return None if chunk is None else chunk.timestamp

    def count_delivered(self) -> None:
        """Count the delivered records of the current chunk in the metrics of its partition."""
        self._delivery.count()

    @property
    def held(self) -> object:
        """The chunk of the record delivered last. Compare this object only by identity."""
        return self._delivery.chunk

    async def is_certain(self) -> bool:
        """Wait until this member certainly owns its partitions, and return True.

        If the channel is closed, return False, because ownership cannot become certain any more.
        """
        now = asyncio.get_running_loop().time
        while self._fence is not None and now() >= self._fence.deadline:
            if self.channel.closed:
                return False
            await asyncio.sleep(POLL_SECONDS)  # polls, because heartbeat responses set no event
        return True

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver no records of these partitions, even of the current chunk, until `release`."""
        self._on_hold.update(partitions)
        for tp in partitions:
            self.channel.hold(tp)
        chunk = self._delivery.chunk
        if chunk is not None and chunk.partition in self._on_hold:
            self._records.deadline = -inf  # so that the next record is requested through `_refill`

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver records of these partitions again."""
        self._on_hold.difference_update(partitions)
        for tp in partitions:
            if (chunk := self._parked.pop(tp, None)) is not None:
                self.channel.push_back(chunk)
            self.channel.release(tp)

    async def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until the delivered records of these partitions are acknowledged.

        Call `hold` for these partitions first, because otherwise more records may be delivered
        meanwhile. If the reading task has ended or is the current task, return at once, because
        that task will not acknowledge them now.
        """
        while self._is_busy_with(partitions) and self._reader.will_ask:
            self._reader.asked.clear()
            await self._reader.asked.wait()

    def waiting_elsewhere(self) -> AbstractContextManager[None]:
        """Return a context manager within which the current task waits for a rebalance.

        The rebalance then does not wait until this task has acknowledged its records.
        """
        return self._reader.waiting_elsewhere()

    def acknowledge_by_reader(self) -> None:
        """Acknowledge all delivered records if the current task is the one that reads."""
        if self._reader.is_current:
            self.acknowledge()

    def acknowledge_at_exit(self) -> None:
        """Acknowledge delivered items when the ``async with`` block ends without an error."""
        self._reader.exit()

    def acknowledge(self) -> None:
        """Count all delivered records as processed."""
        self._acknowledge_delivered()

    def _acknowledge_delivered(self) -> None:
        self._delivery.acknowledge()
        self._reader.acknowledge()

    def _is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        return self._delivery.is_unacknowledged_of(partitions)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the current chunk, the position and the acknowledged offset of a partition.

        Its acknowledged offset is not committed any more. Call this when the partition was revoked
        or lost, or before its position is changed.
        """
        self._delivery.forget(partition)
        self._on_hold.discard(partition)
        if (chunk := self._parked.pop(partition, None)) is not None:
            chunk.records.close()
            self.channel.done(chunk)
        held = self._delivery.chunk
        if held is not None and held.partition == partition:
            self.drop()

    def drop(self) -> None:
        """Drop the chunk that is being delivered. Its last delivered record is not acknowledged."""
        if self._delivery.chunk is not None:
            self._close_chunk(self._delivery.chunk)

    def interrupt(self, error: ConsumerError | None) -> None:
        """Raise `error` once to the reader when it waits for the next item.

        None withdraws an error that was not raised yet.
        """
        self.channel.interrupt(error)

    async def _refill(self, *, again: bool = True) -> decoding.Records | None:
        """Return the records of the next chunk, or None at the end of the stream.

        A loop over records calls this also within a chunk, to check that the partition is still
        owned. It then gets the same chunk again (`again`). A loop over chunks passes
        ``again=False``, because its next request acknowledges the whole chunk.
        """
        try:
            with self._reader.waiting():
                return await self._refilled(again=again)
        except ConsumerError as error:
            if self.translate is None:
                raise
            raise self.translate(error) from error

    async def _refilled(self, *, again: bool) -> decoding.Records | None:
        delivery = self._delivery
        self._reader.attach()
        if (begun := delivery.begun) is not None and await self._continues(begun, again=again):
            return begun.records
        while self.remaining != 0:
            chunk = delivery.chunk if delivery.is_new else await self._next()
            if chunk is None:
                break
            delivery.hold(chunk)
            if not again:
                await open_next(chunk.records)
                if delivery.chunk is chunk:
                    delivery.hold(chunk)  # the position of its records may have changed
            await self._waited_at_fence()
            if delivery.chunk is chunk:
                await self._before_first(chunk)
            if delivery.chunk is not chunk:
                continue  # the partition was lost meanwhile, and its chunk dropped
            if not self._is_on_hold(chunk):
                delivery.begin(whole=not again)
                return chunk.records
            self._park()
        self._reader.mark_ended()
        return None

    async def _continues(self, chunk: Chunk, *, again: bool) -> bool:
        """Acknowledge the delivered part of a chunk. Return whether to deliver the rest of it now.

        A chunk that is delivered in several parts remains current, because its next part follows.
        """
        self._acknowledge_delivered()
        await self._waited_at_fence()
        if self._delivery.chunk is not chunk or self.remaining == 0:
            return False
        paused = not again and bool(chunk.records.paused)
        # `refill` is called early after a deadline, also by a clock other than the loop's
        unfinished = again and not chunk.records.closed
        if (again or paused) and self._is_on_hold(chunk):
            self._park()
        elif paused:
            self._delivery.is_new = True
        elif not unfinished and self._close_chunk(chunk):
            self._delivery.finish_chunk(chunk)
        return unfinished and self._delivery.chunk is chunk

    async def _before_first(self, chunk: Chunk) -> None:
        """Do what a subclass needs before a chunk is delivered. The base class does nothing."""

    def _is_on_hold(self, chunk: Chunk) -> bool:
        return chunk.partition in self._on_hold

    def _park(self) -> None:
        chunk = self._delivery.suspend()
        self._parked[chunk.partition] = chunk
        self._records.deadline = -inf  # `_records` still has the rest of the chunk
        self._reader.asked.set()

    async def _next(self) -> Chunk | None:
        if self._idle is None:
            return await self.channel.pop()
        return await self._idle.pop(self.channel)

    async def _waited_at_fence(self) -> None:
        """Wait until this member certainly owns its partitions. Then set the next deadline.

        If ownership cannot become certain any more, drop the current chunk.
        """
        if self._fence is None:
            self._records.deadline = inf
            return
        now = asyncio.get_running_loop().time
        if now() >= self._fence.deadline and not await self.is_certain():
            self.drop()
        # the partition may be lost before the deadline, so the next check is soon
        self._records.deadline = min(self._fence.deadline, now() + POLL_SECONDS)

    def _close_chunk(self, chunk: Chunk) -> bool:
        """Release the buffer of a chunk. Return False if it was released or dropped before."""
        chunk.records.close()
        self._delivery.drop()
        return self.channel.done(chunk)
