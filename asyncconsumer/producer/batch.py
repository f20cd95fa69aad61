"""A batch of records on its way to a broker, and the delivery of each of its records."""

import asyncio
import copy
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, NamedTuple

from asyncconsumer.errors import ConsumerError
from asyncconsumer.records.decoding import RecordEncoder
from asyncconsumer.types import TopicPartition

_NO_TIMESTAMP: Final = -1  # the topic keeps the timestamps of the producer


class RecordMetadata(NamedTuple):
    """The topic, partition, offset and timestamp of a record that was written."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """The timestamp of the record, which the broker sets if the topic has `LogAppendTime`."""


class ProducerBatch:
    """Records of one partition that are written together or not at all.

    If a broker rejects a batch because of one record, the batch is split into batches of one
    record.
    """

    __slots__ = (
        "attempts",
        "base_offset",
        "created_at",
        "data",
        "done",
        "encoder",
        "error",
        "number",
        "parts",
        "sequence",
        "size",
        "timestamp_ms",
        "tp",
        "waiters",
        "withdrawn",
    )

    def __init__(self, tp: TopicPartition, number: int, created_at: float) -> None:
        self.tp: Final = tp
        self.number: Final = number  # batches of a partition are sent in the order of their numbers
        self.created_at: Final = created_at  # loop time
        self.encoder = RecordEncoder()
        self.size = 0  # bytes of this batch in the send buffer
        self.attempts = 0
        self.sequence = -1
        self.data = b""  # the encoded batch, which every attempt sends unchanged
        self.done = False
        self.error: ConsumerError | None = None
        self.base_offset = -1
        self.timestamp_ms = _NO_TIMESTAMP
        self.parts: list[ProducerBatch] = []
        # functions to call, each with the index of a record
        self.waiters: list[tuple[Callable[[], object], int]] = []
        self.withdrawn: frozenset[int] = frozenset()  # indexes of records not to send again

    def written(self, base_offset: int, timestamp_ms: int) -> None:
        """Store the result of a successful write, and call the functions that wait for this batch.

        `base_offset` is the offset of the first record, or -1 if it is unknown. `timestamp_ms` is
        the timestamp that the broker set, or -1 if the records keep theirs.
        """
        self.base_offset, self.timestamp_ms = base_offset, timestamp_ms
        self._wake()

    def failed(self, error: ConsumerError) -> None:
        """Set the error of all records, and call the functions that wait for this batch."""
        self.error = error
        self._wake()

    def become(self, parts: "list[ProducerBatch]") -> None:
        """Replace this batch by `parts`, which are batches of one record each."""
        self.parts = parts
        for call, index in self.waiters:
            parts[index].waiters.append((call, 0))
        self.waiters.clear()

    async def wait(self) -> None:
        """Wait until all records are written or have failed."""
        if not self.done and not self.parts:
            future = asyncio.get_running_loop().create_future()
            self.waiters.append((partial(_wake, future), 0))
            await future
        for part in self.parts:
            await part.wait()

    def first_error(self) -> ConsumerError | None:
        """Return the error of the first record that has failed, or None."""
        errors = (part.first_error() for part in self.parts)
        return self.error or next((error for error in errors if error is not None), None)

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Return the metadata of the record at `index`, or raise the error of this batch.

        The metadata has `timestamp_ms`, unless the broker has set another timestamp.
        """
        if self.error is not None:
            raise copy.copy(self.error) from self.error  # raising extends the traceback
        offset = -1 if self.base_offset < 0 else self.base_offset + index
        broker_ms = self.timestamp_ms
        return RecordMetadata(
            *self.tp, offset, timestamp_ms if broker_ms == _NO_TIMESTAMP else broker_ms
        )

    def _wake(self) -> None:
        self.done = True
        self.encoder, self.data = _DROPPED, b""  # a delivery may be kept for long
        waiters, self.waiters = self.waiters, []
        for call, _ in waiters:
            call()


_DROPPED: Final = RecordEncoder()  # the encoder of all batches that are done


class RecordDelivery:
    """The delivery of one record. Await it for the `RecordMetadata`, or for its error.

    Cancelling the wait does not cancel the delivery. Several tasks may wait.
    """

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Return whether the record is written, or has failed."""
        return self._current().done

    @property
    def error(self) -> ConsumerError | None:
        """The error of a record that has failed, or None."""
        return self._current().error

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._current()
        if not batch.done:
            future = asyncio.get_running_loop().create_future()
            batch.waiters.append((partial(_wake, future), self._index))
            yield from future
            batch = self._current()
        return batch.metadata(self._index, self._timestamp_ms)

    def _current(self) -> ProducerBatch:
        """Return the batch that has the record now, which is another one after a split."""
        while parts := self._batch.parts:
            self._batch, self._index = parts[self._index], 0
        return self._batch


def withdraw(delivery: RecordDelivery) -> ProducerBatch:
    """Mark the record of a delivery as withdrawn, and return its batch.

    A withdrawn record is not sent again after an attempt in flight.
    """
    batch = delivery._current()  # noqa: SLF001 - of the same module
    batch.withdrawn |= {delivery._index}  # noqa: SLF001
    return batch


def call_when_done(delivery: RecordDelivery, call: Callable[[], object]) -> bool:
    """Call a function as soon as the record of a delivery is written or has failed.

    Return False, without a call, if the record is written or has failed already. Otherwise return
    True. The function must not use the producer or raise an exception.
    """
    batch = delivery._current()  # noqa: SLF001 - of the same module
    if batch.done:
        return False
    batch.waiters.append((call, delivery._index))  # noqa: SLF001
    return True


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
