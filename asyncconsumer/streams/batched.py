"""A stream that can also be read in batches, of several partitions at once."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import ConsumerError, CorruptRecords
from asyncconsumer.records import decoding
from asyncconsumer.streams.idle import IdleTimeout, NothingYet, Until
from asyncconsumer.streams.stream import Fence, Stream
from asyncconsumer.types import Offset, TopicPartition


class HasPartition(Protocol):
    """A record, or what was made of it."""

    @property
    def topic(self) -> str:
        """Of it."""

    @property
    def partition(self) -> int:
        """Of it."""


def first_offsets(records: Iterable[decoding.Record]) -> dict[TopicPartition, Offset]:
    """Return the offset of the first of these records in each partition."""
    first: dict[TopicPartition, Offset] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), Offset(record.offset))
    return first


class BatchWaits(NamedTuple):
    """For how many seconds a batch waits."""

    first: float | None  # for its first record; None waits as long as it takes
    more: float  # for further records


class BatchedStream(Stream):
    """Asking for the next batch is the receipt for all of the last one, and not before.

    Within it records are taken one by one, each the receipt for the one before; what the batch has
    is kept from counting as finished here.
    """

    def __init__(
        self,
        channel: Channel,
        fence: Fence | None = None,
        clock: Callable[[], float] | None = None,
        idle: IdleTimeout | None = None,
    ) -> None:
        super().__init__(channel, fence, clock, idle)
        self._batch: list[decoding.Record] = []  # being collected
        self._first: dict[TopicPartition, Offset] = {}  # of the batch collected or in hand
        self._trouble: ConsumerError | None = None  # met while there was something to hand out
        self._kept_back: Callable[[], Iterable[decoding.Record]] = tuple

    async def next_batch(self, most: int, waits: BatchWaits) -> list[decoding.Record]:
        """Return up to so many records; none at the end, or if the wait for the first is over.

        What was collected when somebody gave up waiting is in the next one. What was lost while
        it was collected is in none: another is begun, for that is not the end.
        """
        if not self._batch:
            self.acknowledge()
        ended = False
        while not ended:
            if not self._batch and self._trouble is not None:
                error, self._trouble = self._trouble, None
                raise error
            try:
                ended = await self._collect(most, waits)
            except NothingYet:
                return []
            if not await self.is_certain():
                return []  # what was collected stays here, unfinished
            if self._batch:
                break
        batch, self._batch = self._batch[:most], self._batch[most:]
        return batch

    def acknowledge(self) -> None:
        """Count everything handed out as processed, batches too.

        Records that were taken for a batch and not handed out yet do not count.
        """
        self._first = self._not_handed_out()
        super().acknowledge()

    @property
    def is_unacknowledged(self) -> bool:
        """Whether a record or a batch was handed out that its user may not be done with."""
        return bool(self._first) or super().is_unacknowledged

    async def _collect(self, most: int, waits: BatchWaits) -> bool:
        """Take records, True at the end; what goes wrong after the first is told the next time."""
        now, idle = asyncio.get_running_loop().time, self._idle
        try:
            if not self._batch:
                if waits.first is not None:
                    self._idle = Until(now() + waits.first)
                first = await anext(self._records, None)
                if first is None:
                    return True
                self._add(first)
            self._idle = Until(now() + waits.more)
            while len(self._batch) < most:
                self._add(await anext(self._records))
        except NothingYet:
            if not self._batch and waits.first is not None:
                raise  # without such a limit what was collected is lost, and another batch begins
        except StopAsyncIteration:
            return True  # and will be again
        except ConsumerError as error:
            if not self._batch:
                raise
            self._trouble = error
        finally:
            self._idle = idle
        return False

    def _add(self, record: decoding.Record) -> None:
        partition = TopicPartition(record.topic, record.partition)
        if partition not in self._first:
            self._first[partition] = Offset(record.offset)
        self._batch.append(record)

    def set_pending_source(self, records: Callable[[], Iterable[decoding.Record]]) -> None:
        """Who reads it says by this what it has taken and not handed out."""
        self._kept_back = records

    def _not_handed_out(self) -> dict[TopicPartition, Offset]:
        """Of each partition the first that was taken, and is being collected or made."""
        return first_offsets((*self._kept_back(), *self._batch))

    @property
    def collected(self) -> Sequence[decoding.Record]:
        """The records that were taken for a batch that is not handed out yet."""
        return self._batch

    def batch_has(self, record: HasPartition) -> bool:
        """Whether its partition is still ours, since the batch was handed out."""
        return (record.topic, record.partition) in self._first

    # --- what a batch is in the way of -----------------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """As of any stream; what was collected, or is still being made, is not handed out yet."""
        taken = self._not_handed_out().get(partition)
        return super().position(partition) if taken is None else taken

    def finished(self) -> dict[TopicPartition, int]:
        """As of any stream; of what is in a batch only what came before."""
        return {**super().finished(), **self._first}

    def _is_busy_with(self, partitions: Collection[TopicPartition]) -> bool:
        return super()._is_busy_with(partitions) or not self._first.keys().isdisjoint(partitions)

    def forget(self, partition: TopicPartition) -> None:
        """Nothing of it is to be committed, nor handed out if it was not yet."""
        super().forget(partition)
        self._first.pop(partition, None)
        trouble = self._trouble
        if isinstance(trouble, CorruptRecords) and (trouble.topic, trouble.partition) == partition:
            self._trouble = None  # it is read anew, or by another
        if self._batch:
            left = [one for one in self._batch if (one.topic, one.partition) != tuple(partition)]
            self._batch = left
