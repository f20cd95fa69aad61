"""A channel as its user reads it: record by record, in chunks, or as Arrow batches."""

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
    """Says until when things may be handed out, by the loop's clock; it may say more later."""

    @property
    def deadline(self) -> float:
        """Until when, as far as is known now."""


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class LoopSource(Source, Protocol[T_co]):
    """What a loop iterates over."""

    def __anext__(self) -> Awaitable[T_co]:
        """Return an awaitable for the next item."""


class Stream:
    """``async for record in stream``, or `chunks()`, or `arrow()`: choose one and stay with it.

    Asking for the next record, chunk or batch is the receipt for the last: only then is it
    finished. Cancelling the wait for the next one loses nothing.
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
        self._unseen: Chunk | None = None  # what is held, until it is handed out
        self._as_chunk = False  # what is held was handed out as a whole
        self._receipt = -1  # up to where its user is known to be done with what is held
        self._reader = Reader(self)
        self._on_hold: set[TopicPartition] = set()
        self._parked: dict[TopicPartition, Chunk] = {}  # begun with, and then put on hold
        self._finished: dict[TopicPartition, int] = {}
        self._log = RateLimitedLogger(logging.getLogger(__name__))
        self._records = decoding.AsyncRecords(self._refill, clock)
        if fence is not None:
            self._records.deadline = -inf  # nothing is certain before it was asked

    def __aiter__(self) -> decoding.AsyncRecords:
        return self._records

    def chunks(self) -> CancelSafeIterator[decoding.Records]:
        """What each fetch brought of a partition, to iterate over with a plain ``for``.

        Much that is compressed comes in several parts, between which the event loop runs.
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
        """Arrow batches, each of one partition, made without an object per record.

        With ``copy=False`` keys and values are ``binary_view`` columns that point into the buffers
        of the fetch and keep them alive, beyond the budget; Spark takes only copied ones.
        """
        # told now, and not when the first record comes
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
                self._take_receipt()  # for the batch before, of the same chunk
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
        """Whether anybody ever asked for something."""
        return self._reader.task is not None

    @property
    def is_over(self) -> bool:
        """Whether its reader has come to its end, and may not ask again."""
        return self._reader.at_end

    def iterate(
        self, source: "LoopSource[T]", prepare: Callable[[bool], None]
    ) -> "decoding.Loop[T]":
        """Return the iterator of a loop over a source that takes from this stream.

        `prepare` is called when reading begins, with whether an item in hand must come again.
        """
        return decoding.Loop(source, Iteration(self._reader, source, prepare))

    def iteration(self, source: Source, prepare: Callable[[bool], None]) -> Iteration:
        """Return an iteration for callers that ask by hand; they `begin` it each time."""
        return Iteration(self._reader, source, prepare)

    def waiting(self) -> AbstractContextManager[None]:
        """Refuse other readers while the next item is being made."""
        return self._reader.waiting()

    @property
    def is_unacknowledged(self) -> bool:
        """Whether something was handed out that its user may not be done with."""
        held = self._held
        if held is None or held is self._unseen:
            return False
        return self._as_chunk or held.records.next_offset > max(self._receipt, held.offset)

    def unacknowledged(self) -> dict[TopicPartition, int]:
        """Return the offsets from which to deliver again what is not acknowledged."""
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
        """Return from where to read what the loop before left of its chunk.

        A loop over records goes on within a chunk that was read as records. No other loop can.
        """
        held = self._held
        if held is None or held is self._unseen:
            return {}
        if self._records.current is held.records and not whole:
            return {}
        return {held.partition: self.finished()[held.partition]}

    def begin(self, partition: TopicPartition, start: int) -> None:
        """It will be read here, from there on: what a commit said, or EARLIEST, or LATEST."""

    def finished(self) -> dict[TopicPartition, int]:
        """Of each partition read, the offset behind the last record that its user is done with.

        What a commit may say. A record that was handed out last is not done with yet.
        """
        finished = dict(self._finished)
        held = self._held
        if held is not None:
            records, done = self._records, max(held.offset, self._receipt)
            if records.current is held.records and records.last_offset >= held.offset:
                # a request that was cancelled acknowledges what came before it, too
                read = records.last_offset if records.in_hand else held.records.next_offset
                done = max(done, read)
            finished[held.partition] = Offset(done, leader_epoch=held.leader_epoch)
        return finished

    def position(self, partition: TopicPartition) -> int | None:
        """The offset from which on nothing was handed out yet; None where nothing was at all."""
        if self._held is not None and self._held.partition == partition:
            return self._held.records.next_offset
        return self._finished.get(partition)

    @property
    def in_hand(self) -> object:
        """What the record handed out last is part of; for `still_owns`."""
        return self._held

    async def still_owns(self, in_hand: object) -> bool:
        """Whether what was in hand may still be used, once that is certain.

        For who waits for something before passing a record on: it may be lost meanwhile.
        """
        return await self.is_certain() and self._held is in_hand

    async def is_certain(self) -> bool:
        """Wait until it is certain what is ours; False if it will never be again."""
        now = asyncio.get_running_loop().time
        while self._fence is not None and now() >= self._fence.deadline:
            if self.channel.closed:
                return False
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        return True

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing more of these, also of the chunk in hand, until `release`."""
        self._on_hold.update(partitions)
        for one in partitions:
            self.channel.hold(one)
        if self._held is not None and self._held.partition in self._on_hold:
            self._records.deadline = -inf  # so that the next record is asked for here

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Go on with them."""
        self._on_hold.difference_update(partitions)
        for one in partitions:
            if (chunk := self._parked.pop(one, None)) is not None:
                self.channel.push_back(chunk)
            self.channel.release(one)

    async def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until the user is done with what was handed out of these, which are on hold.

        Not for a task that is over, or is itself the one that waits: neither will ask again.
        """
        while self._is_busy_with(partitions) and self._reader.will_ask:
            self._reader.asked.clear()
            await self._reader.asked.wait()

    def acknowledge_by_reader(self) -> None:
        """Acknowledge everything handed out if the current task is the one that reads."""
        if self._reader.is_current:
            self.acknowledge()

    def acknowledge_at_exit(self) -> None:
        """Acknowledge everything handed out, because the block was left without an error."""
        self._reader.exit()

    def acknowledge(self) -> None:
        """Count everything handed out as processed."""
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
        """It is somebody else's now: nothing is to be committed for it."""
        self._finished.pop(partition, None)
        self._on_hold.discard(partition)
        if (chunk := self._parked.pop(partition, None)) is not None:
            chunk.records.close()
            self.channel.done(chunk)
        if self._held is not None and self._held.partition == partition:
            self.drop()

    def drop(self) -> None:
        """End the chunk that is being read; it is not finished."""
        if self._held is not None:
            self._let_go(self._held)

    def interrupt(self, error: ConsumerError | None) -> None:
        """Raise this where the user waits for the next, once; None takes it back."""
        self.channel.interrupt(error)

    async def _refill(self, *, again: bool = True) -> decoding.Records | None:
        """The next records; or the same again, when they may be handed out only after a wait.

        Who takes records by the chunk is done with all of it, and must not be given it again.
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
                continue  # it was lost meanwhile, and taken back
            if not self._is_on_hold(chunk):
                self._unseen, self._as_chunk = None, not again
                return chunk.records
            self._park(chunk)
        self._reader.mark_ended()
        return None

    async def _asked_after(self, held: Chunk, again: bool) -> bool:  # noqa: FBT001 - of _refill
        """Be done with what was handed out of a chunk; True if the same is to be handed out again.

        A chunk that paused is not let go of: the rest of it comes next.
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
        """What must have happened before the first record of a chunk is handed out."""

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
        """Wait until things may be handed out; whether the last word on that was out of date."""
        if self._fence is None:
            late, self._records.deadline = self._records.deadline == -inf, inf
            return late
        now = asyncio.get_running_loop().time
        late = now() >= min(self._records.deadline, self._fence.deadline)
        while now() >= self._fence.deadline:
            if self.channel.closed:
                self.drop()  # it will never be certain again that this is ours
                break
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)  # rare, and no event tells of an answer
        # it may be lost before that: look again soon
        self._records.deadline = min(self._fence.deadline, now() + _SECONDS_BETWEEN_LOOKS)
        return late

    def _let_go(self, chunk: Chunk) -> bool:
        """Be done with it; False if it was taken back before."""
        chunk.records.close()
        self._held = self._unseen = None
        return self.channel.done(chunk)
