"""A retry topic, in which failed records wait for their next attempt, in the order of their keys.

A failed record is written to the partition of the retry topic with the same number. It then counts
as processed in the source partition, so nothing there waits for it.

Until the last waiting record of a key is processed, later records of that key are appended to the
retry topic without a handler call.

Retry partitions are co-assigned: the owner of a source partition also owns its retry partition. It
reads the retry partition to its end before it starts the source partition, to know the keys.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.aio.wait import wait_until
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.dead_letters import (
    DeadLetterWriter,
    Failure,
    original,
    parse_failure_headers,
)
from asyncconsumer.errors import ClosedError, ConsumerError, NotAssigned
from asyncconsumer.handlers.context import attempts_elsewhere
from asyncconsumer.handlers.invoke import Call
from asyncconsumer.handlers.ordering import KeyOrder, Ready
from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_TRIES: Final = 1.0


class BehindRetry(Exception):
    """A record must wait in the retry topic, because earlier records of its key wait there."""


class NotDue(Exception):
    """A record of the retry topic may not be tried yet, because its delay has not passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(slots=True)
class _Waiting:
    """The waiting records of one key: their offsets in the retry topic, and writes in flight."""

    offsets: set[int] = field(default_factory=set)
    writing: int = 0


class RetryTopic:
    """The retry topic of one handler, with its work queue. `writer` writes records to the topic."""

    def __init__(
        self,
        topic: str,
        writer: DeadLetterWriter,
        limits: tuple[int, int],
        *,
        delay_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.topic: Final = topic
        self.delay: Final = delay_ms / 1000
        self.queue: Final = WorkQueue(*limits, lambda wake: KeyOrderWithRetries(self))
        self._writer = writer
        self._now_ms = now_ms
        self._log = RateLimitedLogger(_log)
        self._keys: dict[int, tuple[PartitionWork | None, dict[bytes, _Waiting]]] = {}

    def call(self, handle: Call) -> Call:
        """Wrap a handler call, so that it gets records of the retry topic as they were originally.

        Records that must wait raise `NotDue` or `BehindRetry`.
        """

        def begin(record: Any) -> Any:  # noqa: ANN401 - as `Call`
            if record.topic == self.topic:
                if (wait := self._wait(record)) > 0:
                    raise NotDue(wait)
                attempts_elsewhere.set(self._attempts(record))
                return handle(original(record))
            attempts_elsewhere.set(0)
            if record.key is not None and record.key in self._waiting(record.partition):
                raise BehindRetry
            return handle(record)

        return begin

    def _wait(self, record: Record) -> float:
        """Return the seconds until a record may be tried, at most the delay of the topic.

        The bound matters because the timestamp comes from the clock of another machine. There is no
        wait for a record that has waited once, nor for one that only follows others of its key.
        """
        work = self._work(record.partition)
        if not attempts_of(record) or (work is not None and record.offset in work.attempts):
            return 0
        due = record.timestamp / 1000 + self.delay
        return min(due - self._now_ms() / 1000, self.delay)

    def _attempts(self, record: Record) -> int:
        work = self._work(record.partition)
        before = None if work is None else work.attempts.get(record.offset)
        return attempts_of(record) if before is None else before.times

    async def park(self, record: Record, failure: Failure) -> None:
        """Write a failed record to the retry topic."""
        if record.key is None:
            await self._writer.write(record, failure, partition=record.partition)
            return
        keys = self._waiting(record.partition)
        mine = keys.setdefault(record.key, _Waiting())
        mine.writing += 1
        try:
            offset = await self._writer.write(record, failure, partition=record.partition)
            if not self._is_finished(record.partition, offset):
                mine.offsets.add(offset)
        finally:
            mine.writing -= 1
            _tidy(keys, record.key)

    def add(self, records: Sequence[Record]) -> None:
        """Note that these records were read from the retry topic, so that their keys wait."""
        for record in records:
            if record.key is not None:
                keys = self._waiting(record.partition)
                keys.setdefault(record.key, _Waiting()).offsets.add(record.offset)

    def remove(self, record: Record) -> None:
        """Note that a record of the retry topic is processed."""
        keys = self._waiting(record.partition)
        if record.key is not None and record.key in keys:
            keys[record.key].offsets.discard(record.offset)
            _tidy(keys, record.key)

    async def caught_up(self, tp: TopicPartition, consumer: Consumer) -> None:
        """Wait until the retry partition of `tp` is read to its end.

        Then all waiting keys are known.

        Return early if the partition is no longer assigned. Retry for as long as the retry topic is
        unavailable.
        """
        retry_tp = TopicPartition(self.topic, tp.partition)
        while True:
            try:
                end = (await consumer.end_offsets([retry_tp]))[retry_tp]
                await wait_until(partial(_is_read_to, retry_tp, end, consumer))
            except (NotAssigned, ClosedError):
                return
            except ConsumerError as error:
                if not error.retriable:
                    raise
                self._log.warning(
                    "%s waits for the keys in %s, which cannot be read: %s", tp, retry_tp, error
                )
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
            else:
                return

    def _work(self, partition: int) -> PartitionWork | None:
        return self.queue.partitions.get(TopicPartition(self.topic, partition))

    def _waiting(self, partition: int) -> dict[bytes, _Waiting]:
        """Return the waiting records of a partition by key. A new assignment starts without any."""
        work = self._work(partition)
        known, keys = self._keys.get(partition, (None, {}))
        if known is not work or partition not in self._keys:
            keys = {}
            self._keys[partition] = work, keys
        return keys

    def _is_finished(self, partition: int, offset: int) -> bool:
        """Return whether the record at this offset of the retry topic is already processed.

        A record can be read and processed before the response to its write arrives.
        """
        work = self._work(partition)
        position = None if work is None else work.ledger.position
        if work is None or position is None or offset >= position:
            return False
        return not work.ledger.is_unfinished(offset)


class KeyOrderWithRetries(KeyOrder):
    """The ordering "key" for a handler with a retry topic.

    It tells the `RetryTopic` which of its records wait and which are processed.
    """

    def __init__(self, retry_topic: RetryTopic) -> None:
        self._retry_topic = retry_topic

    def add(self, work: PartitionWork, records: Sequence[Record], ready: Ready) -> None:
        """Note that records of the retry topic wait."""
        if self.follows_each(work):
            self._retry_topic.add(records)

    def follows_each(self, work: PartitionWork) -> bool:
        """Return whether the partition belongs to the retry topic."""
        return work.partition.topic == self._retry_topic.topic

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Make the next record of a key ready.

        Note that a record of the retry topic is processed.
        """
        if self.follows_each(work):
            assert not isinstance(item, list)
            self._retry_topic.remove(item)
        super().done(work, item, ready)


def _tidy(keys: dict[bytes, _Waiting], key: bytes) -> None:
    mine = keys.get(key)
    if mine is not None and not mine.offsets and not mine.writing:
        del keys[key]


def attempts_of(record: Record) -> int:
    """Return how many attempts a record had before it was written to the retry topic."""
    attempts = parse_failure_headers(record).get("attempts", b"")
    return int(attempts) if attempts.isdigit() else 0


async def _is_read_to(partition: TopicPartition, offset: int, consumer: Consumer) -> bool:
    return await consumer.position(partition) >= offset
