"""Retry topics, in which failed records wait for their next attempt, in the order of their keys.

A failed record is written to the partition of the retry topic with the same number. It then counts
as processed in the source partition, so nothing there waits for it.

Until the last waiting record of a key is processed, later records of that key are appended to the
retry topic without a handler call.

A handler may have several retry topics with different delays. A record that fails in one of them is
written to the next one. So for each key, the records in a retry topic are older than those in
earlier retry topics and in the source topic. A record whose key waits in later topics is therefore
appended to the first of these.

Retry partitions are co-assigned: the owner of a source partition also owns its retry partitions. It
reads the retry partitions of later topics to their ends before it starts a partition, to know the
keys.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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
from asyncconsumer.handlers.invoke import CallHandler
from asyncconsumer.handlers.ordering import KeyOrder, Ready
from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_TRIES: Final = 1.0


class BehindRetry(Exception):
    """An error for a record that must wait in a retry topic behind earlier records of its key."""

    def __init__(self, topic: "RetryTopic") -> None:
        super().__init__(topic.topic)
        self.topic = topic


class NotDue(Exception):
    """An error for a record of a retry topic that was read before its delay has passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(slots=True)
class _Waiting:
    """The records of one key that wait in a retry topic: their offsets, and the pending writes."""

    offsets: set[int] = field(default_factory=set)
    writing: int = 0


class RetryTopic:
    """One retry topic of a handler. `writer` writes records to the topic."""

    def __init__(
        self, topic: str, writer: DeadLetterWriter, *, delay_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self.topic: Final = topic
        self.delay: Final = delay_ms / 1000
        self.partitions: Mapping[TopicPartition, PartitionWork] = {}  # those of the work queue
        self._writer = writer
        self._now_ms = now_ms
        self._log = RateLimitedLogger(_log)
        self._keys: dict[int, tuple[PartitionWork | None, dict[bytes, _Waiting]]] = {}

    def has(self, record: Record) -> bool:
        """Return whether records with the key of `record` wait in this retry topic."""
        return record.key is not None and record.key in self._waiting(record.partition)

    def begin(self, record: Record) -> None:
        """Set the number of earlier attempts for the handler call with a record of this topic.

        Raise `NotDue` if the record's delay has not passed.
        """
        if (wait := self._wait(record)) > 0:
            raise NotDue(wait)
        attempts_elsewhere.set(self._attempts(record))

    def _wait(self, record: Record) -> float:
        """Return the seconds until a record may be tried. Zero or less means now.

        The result is at most the delay of the topic, in case the clock of the machine that wrote
        the timestamp is wrong. It is 0 for a record that has waited once. It is also 0 for a record
        that has no failed attempt and is in this topic only to follow others of its key.
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
        """Write a record to the retry topic, where later records of its key will wait, too."""
        if record.key is None:
            await self._writer.write(record, failure, partition=record.partition)
            return
        keys = self._waiting(record.partition)
        waiting = keys.setdefault(record.key, _Waiting())
        waiting.writing += 1
        try:
            offset = await self._writer.write(record, failure, partition=record.partition)
            if not self._is_finished(record.partition, offset):
                waiting.offsets.add(offset)
        finally:
            waiting.writing -= 1
            _tidy(keys, record.key)

    def add(self, records: Sequence[Record]) -> None:
        """Note that records of the retry topic wait. Later records of their keys must wait, too."""
        for record in records:
            if record.key is not None:
                keys = self._waiting(record.partition)
                keys.setdefault(record.key, _Waiting()).offsets.add(record.offset)

    def remove(self, record: Record) -> None:
        """Note that a record of the retry topic is processed and no longer waits."""
        keys = self._waiting(record.partition)
        if record.key is not None and record.key in keys:
            keys[record.key].offsets.discard(record.offset)
            _tidy(keys, record.key)

    async def caught_up(self, tp: TopicPartition, consumer: Consumer) -> None:
        """Wait until the retry partition of `tp` is read to its end.

        After that, the keys of all waiting records are known.

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
                    "%s is not processed yet, because %s cannot be read for waiting keys: %s",
                    tp,
                    retry_tp,
                    error,
                )
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
            else:
                return

    def _work(self, partition: int) -> PartitionWork | None:
        return self.partitions.get(TopicPartition(self.topic, partition))

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


class RetryTopics:
    """The retry topics of a handler in the order of its attempts, with its work queue."""

    def __init__(self, topics: Sequence[RetryTopic], limits: tuple[int, int]) -> None:
        self.queue: Final = WorkQueue(*limits, lambda wake: KeyOrderWithRetries(self))
        self._topics = topics
        self._numbers = {each.topic: number for number, each in enumerate(topics)}
        for each in topics:
            each.partitions = self.queue.partitions

    def find(self, topic: str) -> RetryTopic | None:
        """Return the retry topic with this name, or None."""
        number = self._numbers.get(topic)
        return None if number is None else self._topics[number]

    def next_after(self, topic: str) -> RetryTopic | None:
        """Return the retry topic for records of `topic` that fail, or None if there is none."""
        return next(iter(self._after(topic)), None)

    def _after(self, topic: str) -> Sequence[RetryTopic]:
        """Return the retry topics after `topic`: all of them if it is the source topic."""
        return self._topics[self._numbers.get(topic, -1) + 1 :]

    def call(self, handle: CallHandler) -> CallHandler:
        """Return a handler call that passes records of retry topics in their original form.

        The handler call raises `NotDue` or `BehindRetry` for a record that must wait.
        """

        def begin(record: Any) -> Any:  # noqa: ANN401 - as `CallHandler`
            current = self.find(record.topic)
            source = record if current is None else original(record)
            for later in self._after(record.topic):
                if later.has(record):
                    raise BehindRetry(later)
            if current is None:
                attempts_elsewhere.set(0)
            else:
                current.begin(record)
            return handle(source)

        return begin

    async def caught_up(self, tp: TopicPartition, consumer: Consumer) -> None:
        """Wait until the partitions of `tp` in all later retry topics are read to their ends."""
        for later in self._after(tp.topic):
            await later.caught_up(tp, consumer)


class KeyOrderWithRetries(KeyOrder):
    """The ordering "key" for a handler with retry topics.

    It notifies each `RetryTopic` of its records that wait, and of its records that are processed.
    """

    def __init__(self, topics: RetryTopics) -> None:
        self._topics = topics

    def add(self, work: PartitionWork, records: Sequence[Record], ready: Ready) -> None:
        """Note that records of a retry topic wait."""
        if (topic := self._topics.find(work.partition.topic)) is not None:
            topic.add(records)

    def follows_each(self, work: PartitionWork) -> bool:
        """Return whether the partition belongs to a retry topic.

        A `RetryTopic` must be notified of each processed record.
        """
        return self._topics.find(work.partition.topic) is not None

    def done(self, work: PartitionWork, item: Item, ready: Ready) -> None:
        """Make the next record of the same key ready.

        If the processed record is from a retry topic, note that it no longer waits.
        """
        if (topic := self._topics.find(work.partition.topic)) is not None:
            assert not isinstance(item, list)
            topic.remove(item)
        super().done(work, item, ready)


def _tidy(keys: dict[bytes, _Waiting], key: bytes) -> None:
    waiting = keys.get(key)
    if waiting is not None and not waiting.offsets and not waiting.writing:
        del keys[key]


def attempts_of(record: Record) -> int:
    """Return how many attempts a record had before it was written to the retry topic."""
    attempts = parse_failure_headers(record).get("attempts", b"")
    return int(attempts) if attempts.isdigit() else 0


async def _is_read_to(partition: TopicPartition, offset: int, consumer: Consumer) -> bool:
    return await consumer.position(partition) >= offset
