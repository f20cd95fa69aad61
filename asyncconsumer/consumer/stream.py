"""The stream of a `Consumer`: records, batches, chunks or Arrow, after its delivery policy."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, cast

from asyncconsumer.config import whole_number
from asyncconsumer.consumer.interceptors import Interceptors
from asyncconsumer.consumer.poison_policy import PoisonPolicy
from asyncconsumer.errors import (
    ClosedError,
    ConfigError,
    CorruptRecords,
    DeserializationFailed,
)
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import COLUMNS, Timestamps
from asyncconsumer.serdes import Deserializer
from asyncconsumer.streams.batched import BatchedStream, BatchWaits, first_offsets
from asyncconsumer.streams.cancel_safe import CancelSafeIterator
from asyncconsumer.streams.messages import K, Message, V
from asyncconsumer.streams.stream import LoopSource
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")
Way = Literal["records", "batches", "calls", "chunks", "arrow"]
"""The kind of items that an iteration delivers; "calls" are those of `getmany` and `getone`."""


class _MessageSource(Generic[K, V]):
    """The messages of a `ConsumerStream`, for its loops."""

    __slots__ = ("_reading",)

    def __init__(self, reading: "ConsumerStream[K, V]") -> None:
        self._reading = reading

    @property
    def in_hand(self) -> bool:
        """Whether a message was delivered, and no other was requested since."""
        return self._reading.in_hand

    def __anext__(self) -> Awaitable[Message[K, V]]:
        return self._reading.next_message()


class _ReturnedBatch:
    """The result of the last `getmany` or `getone`, as the source of an iteration."""

    in_hand = False


class PendingRecord(NamedTuple):
    """A record whose deserializers may need more time."""

    record: decoding.Record
    part_of: object


class UnreadableItem(NamedTuple):
    """The error of an unreadable record or batch, and the chunk that contains it."""

    error: DeserializationFailed | CorruptRecords
    part_of: object


class RecordLimit:
    """The number of records that all streams of a consumer may still deliver."""

    def __init__(self, left: int) -> None:
        self.left = left


class DeliveryPolicy(NamedTuple):
    """The deserializers, interceptors, poison policy and limits of a stream."""

    key: Deserializer[Any]
    value: Deserializer[Any]
    interceptors: Interceptors
    poison: PoisonPolicy
    commit: Callable[[Message[Any, Any]], Awaitable[object]] | None  # of a message
    limit: RecordLimit | None
    read_again: Callable[[Mapping[TopicPartition, int]], None]  # from these offsets
    select: Callable[[Collection[TopicPartition] | None], bool]  # returns whether it changed

    @property
    def as_it_is(self) -> bool:
        """Whether the stream delivers records, not messages."""
        return self.key.as_it_is and self.value.as_it_is and self.commit is None

    @property
    def waits(self) -> bool:
        """Whether a deserializer may have to be awaited."""
        return self.key.waits or self.value.waits

    @property
    def nothing(self) -> bool:
        """Whether records are delivered unchanged, without a call for each."""
        special = self.interceptors or self.limit
        return self.as_it_is and not special and self.poison.policy == "raise"


class ConsumerStream(Generic[K, V]):
    """A stream to read with ``async for``, `batches()`, `chunks()` or `arrow()`: choose one.

    Asking for the next item acknowledges the one before. A cancelled wait loses nothing.
    """

    def __init__(
        self, stream: BatchedStream, how: DeliveryPolicy, partition: TopicPartition | None = None
    ) -> None:
        self.partition = partition  # if the stream has only this one
        self._stream = stream
        self._how = how
        self._readers = how.key.reader("key"), how.value.reader("value")
        self._as_it_is, self._waits = how.as_it_is, how.waits  # cached: read for each record
        self._in_work: PendingRecord | None = None  # taken, not delivered yet
        self._left: list[decoding.Record] = []  # of a batch, taken and not delivered yet
        self.in_hand = False  # a message was delivered, and no other was requested since
        self._bad: UnreadableItem | None = None  # the poison policy is not applied yet
        stream.set_pending_source(self._not_handed_out)
        self._by_hand = stream.iteration(self, self._prepare)
        self._returned = _ReturnedBatch()
        self._calls = stream.iteration(self._returned, partial(self._prepare, way="calls"))

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        if self._how.nothing:
            records = self._loop(aiter(self._stream), self._prepare)
            return cast("AsyncIterator[Message[K, V]]", records)
        return self._loop(_MessageSource(self), self._prepare)

    async def __anext__(self) -> Message[K, V]:
        """Return the next message, and acknowledge the one before.

        A wait that is cancelled or timed out loses nothing. After a retriable deserializer error
        the same record is tried again. After another error the next record follows.
        """
        self._by_hand.begin()
        return await self.next_message()

    async def next_message(self) -> Message[K, V]:
        """Return the next message, for the iteration that reads now."""
        self.in_hand = False
        if self._is_used_up():
            raise StopAsyncIteration
        while True:
            try:
                if self._bad is not None:
                    await self._deal_with(self._bad)
                message = await self._next()
            except (CorruptRecords, DeserializationFailed) as error:
                await self._deal_with(UnreadableItem(error, self._stream.in_hand))
                continue
            if message is None:
                continue
            if self._how.limit is not None:
                self._how.limit.left -= 1
            self.in_hand = True
            return message

    async def _deal_with(self, bad: UnreadableItem) -> None:
        """Apply the poison policy.

        If the caller is cancelled meanwhile, the next call applies it again.
        """
        if self._how.poison.raises(bad.error):
            if not bad.error.retriable:
                self._in_work = None  # the next request acknowledges it
            raise bad.error
        self._bad = bad
        await self._met(bad)
        self._bad = self._in_work = None

    async def _met(self, bad: UnreadableItem) -> None:
        await self._how.poison.met(bad.error, lambda: self._stream.in_hand is bad.part_of)

    def _not_handed_out(self) -> list[decoding.Record]:
        in_work = self._in_work
        return self._left if in_work is None else [in_work.record, *self._left]

    async def _next(self) -> Message[K, V] | None:
        """Return the next message; None if its partition was lost during deserialization."""
        if self._in_work is None:
            record = self._how.interceptors.on_consume(await anext(aiter(self._stream)))
            if not self._waits:
                return self._made(record)
            self._in_work = PendingRecord(record, self._stream.in_hand)
        in_work = self._in_work
        with self._stream.waiting():
            message = await self._waited(in_work.record)
            lost = not await self._stream.still_owns(in_work.part_of)
        self._in_work = None
        return None if lost else message

    def batches(
        self, max_records: int = 500, max_wait_ms: int = 100
    ) -> AsyncIterator[list[Message[K, V]]]:
        """Return an iterator over lists of up to `max_records` records, of any partitions.

        After its first record, a batch waits up to `max_wait_ms` for more. Asking for the next
        batch acknowledges the whole batch.
        """
        whole_number("max_records", max_records, 1)
        whole_number("max_wait_ms", max_wait_ms, 0)
        waits = BatchWaits(None, max_wait_ms / 1000)
        take = partial(self._next_batch, max_records, lambda: waits)
        return self._loop(CancelSafeIterator(take), partial(self._prepare, way="batches"))

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int = 500
    ) -> dict[TopicPartition, list[Message[K, V]]]:
        """Return the buffered messages, by partition; wait up to `timeout_ms` if there are none.

        With `partitions`, only these are read, until the next call. The next call or `commit`
        acknowledges the returned messages.
        """
        whole_number("timeout_ms", timeout_ms, 0)
        whole_number("max_records", max_records, 1)
        found: dict[TopicPartition, list[Message[K, V]]] = {}
        for message in await self._get(partitions, timeout_ms / 1000, max_records):
            tp = TopicPartition(message.topic, message.partition)
            found.setdefault(tp, []).append(message)
        return found

    async def getone(self, *partitions: TopicPartition) -> Message[K, V]:
        """Return the next message, of these partitions if any are given.

        The next call or `commit` acknowledges it.
        """
        return (await self._get(partitions, None, 1))[0]

    async def _get(
        self, partitions: Sequence[TopicPartition], seconds: float | None, max_records: int
    ) -> list[Message[K, V]]:
        self._calls.begin()
        if self._how.select(partitions or None):
            self._seek_back(self._taken())  # these records may be of other partitions
        now = asyncio.get_running_loop().time
        deadline = None if seconds is None else now() + seconds

        def waits() -> BatchWaits:
            return BatchWaits(None if deadline is None else max(0.0, deadline - now()), 0.0)

        self._returned.in_hand = False
        found = await self._next_batch(max_records, waits)
        self._returned.in_hand = bool(found)
        if not found and (seconds is None or self._stream.is_over):
            raise ClosedError("the consumer was closed, and nothing more comes")
        return found or []

    async def _next_batch(
        self, max_records: int, waits: Callable[[], BatchWaits]
    ) -> list[Message[K, V]] | None:
        limit = self._how.limit
        while self._left or not self._is_used_up():
            most = max_records if limit is None else min(max_records, limit.left)
            try:
                self._left = self._left or await self._take(most, waits())
            except CorruptRecords as error:
                await self._met(UnreadableItem(error, self._stream.in_hand))
                continue
            if not self._left:
                return None
            with self._stream.waiting():
                made = await self._made_of_left(most)
            if made:
                if limit is not None:
                    limit.left -= len(made)
                return made
        return None

    async def _take(self, most: int, waits: BatchWaits) -> list[decoding.Record]:
        batch = await self._stream.next_batch(most, waits)
        interceptors = self._how.interceptors
        return [interceptors.on_consume(one) for one in batch] if interceptors else batch

    def chunks(self) -> AsyncIterator[decoding.Records]:
        """Return an iterator over chunks: the raw records of a partition that one fetch returned.

        A chunk is iterated with a plain ``for``, which is cheaper than ``async for``.
        """
        self._refuse_limit("chunks()")
        return self._loop(self._stream.chunks(), partial(self._prepare, way="chunks"))

    def arrow(
        self,
        *,
        copy: bool = True,
        max_rows: int | None = None,
        columns: Sequence[str] = COLUMNS,
        timestamps: Timestamps = "ms",
    ) -> AsyncIterator["pa.RecordBatch"]:
        """Return an iterator over Arrow batches, each of one partition.

        No object is created per record. With ``copy=False`` keys and values point into the fetch
        buffers and keep them alive.
        """
        self._refuse_limit("arrow()")
        batches = self._stream.arrow(
            copy=copy, max_rows=max_rows, columns=columns, timestamps=timestamps
        )
        return self._loop(batches, partial(self._prepare, way="arrow"))

    # --- internals -------------------------------------------------------------------------------

    def _loop(self, source: LoopSource[T], prepare: Callable[[bool], None]) -> AsyncIterator[T]:
        return self._stream.iterate(source, prepare)

    def _prepare(self, again: bool, *, way: Way = "records") -> None:  # noqa: FBT001 - one caller
        """Seek back to the records that another iteration took and did not acknowledge."""
        stream = self._stream
        offsets = stream.leftover(whole=way == "chunks")
        more = [self._taken(way), stream.unacknowledged() if again else {}]
        for tp, offset in (item for each in more for item in each.items()):
            offsets[tp] = min(offset, offsets.get(tp, offset))
        self._seek_back(offsets)
        if way != "calls":
            self._how.select(None)

    def _taken(self, way: Way | None = None) -> Mapping[TopicPartition, int]:
        """Return the first offsets of taken records that this way of reading cannot deliver."""
        in_batches = way in ("batches", "calls")
        taken = [] if in_batches else [*self._left, *self._stream.collected]
        if self._in_work is not None and way != "records":
            taken = [self._in_work.record, *taken]
        return first_offsets(taken)

    def _seek_back(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets:
            self._in_work, self._left, self._bad = None, [], None
            self._how.read_again(offsets)

    def _is_used_up(self) -> bool:
        """Return whether the record limit is reached; if so, acknowledge the last record."""
        used_up = self._how.limit is not None and self._how.limit.left <= 0
        if used_up:
            self._stream.acknowledge()
        return used_up

    def _refuse_limit(self, way: str) -> None:
        if self._how.limit is not None:
            raise ConfigError(f"max_records counts records, and {way} hands out many at once")

    def _made(self, record: decoding.Record) -> Message[K, V]:
        """Return the message of a record whose deserializers need no await."""
        if self._as_it_is:
            return cast("Message[K, V]", record)
        read_key, read_value = self._readers
        key, value = read_key(record), read_value(record)
        return Message.of(record, cast("K | None", key), cast("V | None", value), self._how.commit)

    async def _waited(self, record: decoding.Record) -> Message[K, V]:
        read_key, read_value = self._readers
        if isinstance(key := read_key(record), CoroutineType):
            key = await key
        if isinstance(value := read_value(record), CoroutineType):
            value = await value
        return Message.of(record, key, value, self._how.commit)

    async def _made_of_left(self, most: int) -> list[Message[K, V]]:
        """Return messages for the rest of a batch, without unreadable records.

        If the policy raises, the messages before the unreadable record are returned first.
        """
        self._left = [one for one in self._left if self._stream.batch_has(one)]  # without lost ones
        made: list[Message[K, V]] = []
        waited, poison = self._waits, self._how.poison
        left = min(most, len(self._left))
        for at, record in enumerate(self._left[:most]):
            try:
                made.append(await self._waited(record) if self._waits else self._made(record))
            except DeserializationFailed as error:
                if not poison.raises(error):
                    waited = True
                    await self._met(UnreadableItem(error, self._stream.in_hand))
                    continue
                left = at if made or error.retriable else at + 1
                if not made:
                    self._left = self._left[left:]
                    raise
                break
        if waited:
            made = await self._still_ours(made)
        self._left = self._left[left:]
        return made

    async def _still_ours(self, made: list[Message[K, V]]) -> list[Message[K, V]]:
        """Return the messages whose partitions were not lost during deserialization."""
        if not await self._stream.is_certain():
            raise StopAsyncIteration  # never certain again: all records stay unacknowledged
        return [one for one in made if self._stream.batch_has(one)]
