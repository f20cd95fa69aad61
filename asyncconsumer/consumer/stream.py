"""The stream of a `Consumer`: records, batches, chunks or Arrow batches, by a delivery policy."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, cast

from asyncconsumer.config import whole_number
from asyncconsumer.consumer.interceptors import Interceptors
from asyncconsumer.consumer.poison_policy import PoisonPolicy
from asyncconsumer.consumer.spans import ItemSpans, TracedSource
from asyncconsumer.errors import ClosedError, ConfigError, CorruptRecords, DeserializationFailed
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import COLUMNS, Timestamps
from asyncconsumer.records.decoding import Message
from asyncconsumer.records.message import Fail, K, V
from asyncconsumer.serdes import Deserializer
from asyncconsumer.serdes.types import raise_failure
from asyncconsumer.streams.batched import BatchedStream, BatchWaits, first_offsets
from asyncconsumer.streams.cancel_safe import CancelSafeIterator
from asyncconsumer.streams.stream import LoopSource
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")
Way = Literal["records", "batches", "calls", "chunks", "arrow"]
"""The kind of items that an iteration delivers; "calls" are those of `getmany` and `getone`."""


class _ReturnedBatch:
    """The records that the last `getmany` or `getone` returned. The next call acknowledges them."""

    in_flight = False


class DeliveryPolicy(NamedTuple):
    """The deserializers, interceptors, poison policy and limits of a stream."""

    key: Deserializer[Any]
    value: Deserializer[Any]
    interceptors: Interceptors
    poison: PoisonPolicy
    commit: Callable[[Message[Any, Any]], Awaitable[object]] | None  # for `Message.commit`
    read_again: Callable[[Mapping[TopicPartition, int]], None]  # seeks to offsets
    select: Callable[[Collection[TopicPartition] | None], bool]  # True if it changed
    message_type: type[Message[Any, Any]] = Message  # a subclass, for other APIs
    fail: Fail | None = raise_failure  # None raises the errors of deserializers unchanged
    spans: Callable[[], ItemSpans] | None = None  # for tracing

    def builder(self) -> decoding.MessageBuilder | None:
        """Return a builder of messages, or None if records are delivered unchanged."""
        key, key_takes_record = self.key.function("key")
        value, value_takes_record = self.value.function("value")
        plain = self.commit is None and not self.interceptors and self.message_type is Message
        if key is None and value is None and plain:
            return None
        return decoding.MessageBuilder(
            key,
            value,
            key_takes_record=key_takes_record,
            value_takes_record=value_takes_record,
            commit=self.commit,
            fail=self.fail,
            interceptors=self.interceptors.functions,
            intercept_failed=self.interceptors.failed,
            message_type=self.message_type,
        )


class ConsumerStream(Generic[K, V]):
    """A stream of records. Read it with ``async for``, `batches()`, `chunks()` or `arrow()`.

    Choose one of these ways. Asking for the next item acknowledges the one before. Cancelling a
    request loses no item.
    """

    def __init__(
        self, stream: BatchedStream, policy: DeliveryPolicy, partition: TopicPartition | None = None
    ) -> None:
        self.partition = partition  # the only partition, or None
        self._stream = stream
        self._policy = policy
        stream.build_messages(policy.builder(), self._apply_policy)
        self._by_hand = stream.iteration(aiter(stream), self._prepare)
        self._spans = None if policy.spans is None else policy.spans()
        self._returned = _ReturnedBatch()
        self._calls = stream.iteration(self._returned, partial(self._prepare, way="calls"))

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        items = cast("LoopSource[Message[K, V]]", aiter(self._stream))
        return self._loop(items, self._prepare)

    async def __anext__(self) -> Message[K, V]:
        """Return the next message, and acknowledge the one before.

        A wait that is cancelled or timed out loses nothing. After a retriable deserializer error
        the same record is tried again. After another error the next record follows.
        """
        self._by_hand.begin()
        self.end_span()
        message = cast("Message[K, V]", await anext(aiter(self._stream)))
        if self._spans is not None:
            self._spans.begin(message)
        return message

    @property
    def remaining(self) -> int | None:
        """The number of records that may still be delivered, or None without a limit."""
        return self._stream.remaining

    def _apply_policy(self, error: Exception) -> Awaitable[None] | None:
        """Return a coroutine that handles an unreadable record, or None to raise `error`."""
        if not isinstance(error, CorruptRecords | DeserializationFailed):
            return None
        if self._policy.poison.raises(error):
            return None
        chunk = self._stream.held
        return self._policy.poison.apply(error, lambda: self._stream.held is chunk)

    def batches(
        self, max_records: int = 500, max_wait_ms: int = 100
    ) -> AsyncIterator[list[Message[K, V]]]:
        """Return an iterator over lists of up to `max_records` records, which mix partitions.

        After its first record, a batch waits up to `max_wait_ms` for more. Asking for the next
        batch acknowledges the whole batch.
        """
        whole_number("max_records", max_records, 1)
        whole_number("max_wait_ms", max_wait_ms, 0)
        waits = BatchWaits(None, max_wait_ms / 1000)

        async def take() -> list[Message[K, V]] | None:
            return await self._stream.next_batch(max_records, waits) or None

        return self._loop(CancelSafeIterator(take), partial(self._prepare, way="batches"))

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int = 500
    ) -> dict[TopicPartition, list[Message[K, V]]]:
        """Return up to `max_records` buffered messages by partition.

        If none are buffered, wait up to `timeout_ms`, and return an empty mapping after that. With
        `partitions`, only messages of these are returned. The next call or `commit` acknowledges
        the returned messages.
        """
        whole_number("timeout_ms", timeout_ms, 0)
        whole_number("max_records", max_records, 1)
        messages: dict[TopicPartition, list[Message[K, V]]] = {}
        batch = await self._get(partitions, timeout_ms / 1000, max_records)
        starts = self._stream.runs.delivered
        for start, end in pairwise([*starts, len(batch)] if batch else ()):
            first = batch[start]
            of_partition = messages.setdefault(TopicPartition(first.topic, first.partition), [])
            of_partition += batch[start:end]
        return messages

    async def getone(self, *partitions: TopicPartition) -> Message[K, V]:
        """Wait for the next message and return it.

        With `partitions`, return a message of one of these. The next call or `commit` acknowledges
        the message.
        """
        if not partitions and (message := self.take_buffered()) is not None:
            return message
        return (await self._get(partitions, None, 1))[0]

    def take_buffered(self) -> Message[K, V] | None:
        """Return the next message of the current chunk, and acknowledge the one before.

        Return None if `getone` has to be called. This is so for the first call, after a call by
        another task, and if the next message must be waited for. After a call for chosen
        partitions, the rest of their chunk is returned first.
        """
        if self._spans is not None or not self._calls.continues:
            return None
        self._returned.in_flight = False
        message: Message[K, V] | None = self._stream.take_one()
        self._returned.in_flight = message is not None
        return message

    async def _get(
        self, partitions: Sequence[TopicPartition], seconds: float | None, max_records: int
    ) -> list[Message[K, V]]:
        self._calls.begin()
        if self._policy.select(partitions or None):
            self._seek_back(first_offsets(self._stream.collected))  # maybe of other partitions
        self._returned.in_flight = False
        self.end_span()
        batch: list[Message[K, V]] = await self._stream.next_batch(
            max_records, BatchWaits(seconds, 0.0)
        )
        self._returned.in_flight = bool(batch)
        if not batch and (seconds is None or self._stream.is_over):
            raise ClosedError("the consumer was closed, so there are no more records")
        if self._spans is not None and batch:
            self._spans.begin(batch)
        return batch

    def chunks(self) -> AsyncIterator[decoding.Records]:
        """Return an iterator over chunks, each with the raw records of a partition from one fetch.

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

    def end_span(self) -> None:
        """End the OpenTelemetry span of the last item, if there is one."""
        if self._spans is not None:
            self._spans.end()

    # --- internals -------------------------------------------------------------------------------

    def _loop(self, source: LoopSource[T], prepare: Callable[[bool], None]) -> AsyncIterator[T]:
        if self._spans is not None:
            source = TracedSource(source, self._spans)
        return self._stream.iterate(source, prepare)

    def _prepare(self, again: bool, *, way: Way = "records") -> None:  # noqa: FBT001 - one caller
        """Prepare an iteration of the kind `way`. Seek back to records that it must deliver.

        These are records that an earlier iteration took from the stream and did not deliver. With
        `again`, they include delivered records that are not acknowledged.
        """
        stream = self._stream
        offsets = stream.leftover(whole=way == "chunks")
        in_batches = way in ("batches", "calls")
        collected = {} if in_batches else first_offsets(stream.collected)
        unacknowledged = stream.unacknowledged() if again else {}
        for tp, offset in (*collected.items(), *unacknowledged.items()):
            offsets[tp] = min(offset, offsets.get(tp, offset))
        self._seek_back(offsets)
        if way != "calls":
            self._policy.select(None)

    def _seek_back(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets:
            self._policy.read_again(offsets)

    def _refuse_limit(self, way: str) -> None:
        if self._stream.remaining is not None:
            raise ConfigError(f"`max_records` counts records, and {way} returns many at once")
