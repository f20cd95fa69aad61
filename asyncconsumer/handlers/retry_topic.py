"""Records that wait in a retry topic, and those of their keys that must wait behind them.

A record that failed is written to the partition of the same number, and is finished with where it
was: nothing waits for it there. From then on records of its key are written behind it, unseen,
until the last of them is finished. Whoever has a partition has the one of the retry topic, too, and
reads that up to its end before it begins with the other: so it knows which keys wait.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.consumer.dead_letters import (
    DeadLetterProducer,
    Failure,
    original,
    parse_failure_headers,
)
from asyncconsumer.errors import ClosedError, ConsumerError, NotAssigned
from asyncconsumer.handlers.invoke import Call
from asyncconsumer.handlers.ordering import KeyOrder, Ready
from asyncconsumer.handlers.partition_work import Item, PartitionWork
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_LOOKS: Final = 0.05
_SECONDS_BETWEEN_TRIES: Final = 1.0


class BehindRetry(Exception):
    """Another of its key waits in the retry topic: this one waits behind it."""


class NotDue(Exception):
    """It is not its time yet."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(slots=True)
class _Waiting:
    """What waits of one key: offsets in the retry topic, and what is being written there."""

    offsets: set[int] = field(default_factory=set)
    writing: int = 0


class RetryTopic:
    """The retry topic of one handler, as its lanes see it. `writer` writes to it."""

    def __init__(
        self,
        topic: str,
        writer: DeadLetterProducer,
        limits: tuple[int, int],
        *,
        delay_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.topic: Final = topic
        self.delay: Final = delay_ms / 1000
        self.lanes: Final = WorkQueue(*limits, lambda wake: KeyOrderWithRetries(self))
        self._writer = writer
        self._now_ms = now_ms
        self._log = RateLimitedLogger(_log)
        self._keys: dict[int, tuple[PartitionWork | None, dict[bytes, _Waiting]]] = {}

    def call(self, handle: Call) -> Call:
        """What a handler is called with: not if it must wait, and with the record that it was."""

        def begin(record: Any) -> Any:  # noqa: ANN401 - as Call
            if record.topic == self.topic:
                if (wait := self._wait(record)) > 0:
                    raise NotDue(wait)
                return handle(original(record))
            if record.key is not None and record.key in self._waiting(record.partition):
                raise BehindRetry
            return handle(record)

        return begin

    def _wait(self, record: Record) -> float:
        """Seconds until it may be tried. Once at most its delay: whoever wrote it has a clock."""
        share = self._share(record.partition)
        if not attempts_of(record) or (share is not None and record.offset in share.attempts):
            return 0
        due = record.timestamp / 1000 + self.delay
        return min(due - self._now_ms() / 1000, self.delay)

    async def park(self, record: Record, failure: Failure) -> None:
        """Have it wait in the retry topic."""
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

    def came(self, records: list[Record]) -> None:
        """Records of the retry topic were read."""
        for record in records:
            if record.key is not None:
                keys = self._waiting(record.partition)
                keys.setdefault(record.key, _Waiting()).offsets.add(record.offset)

    def went(self, record: Record) -> None:
        """A record of the retry topic is finished."""
        keys = self._waiting(record.partition)
        if record.key is not None and record.key in keys:
            keys[record.key].offsets.discard(record.offset)
            _tidy(keys, record.key)

    async def caught_up(self, at: TopicPartition, consumer: Consumer) -> None:
        """Return when it is known which keys wait, or a partition is not ours any more.

        However long the retry topic is out of reach: any other topic would be waited for, too.
        """
        companion = TopicPartition(self.topic, at.partition)
        while True:
            try:
                end = (await consumer.end_offsets([companion]))[companion]
                while await consumer.position(companion) < end:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            except (NotAssigned, ClosedError):
                return
            except ConsumerError as error:
                if not error.retriable:
                    raise
                self._log.warning(
                    "%s waits until it is known what %s holds: %s", at, companion, error
                )
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
            else:
                return

    def _share(self, partition: int) -> PartitionWork | None:
        return self.lanes.shares.get(TopicPartition(self.topic, partition))

    def _waiting(self, partition: int) -> dict[bytes, _Waiting]:
        """By key; what was known when the partition was ours before does not count."""
        share = self._share(partition)
        known, keys = self._keys.get(partition, (None, {}))
        if known is not share or partition not in self._keys:
            keys = {}
            self._keys[partition] = share, keys
        return keys

    def _is_finished(self, partition: int, offset: int) -> bool:
        """What was written may have been read, and finished, before we were told that it was."""
        share = self._share(partition)
        position = None if share is None else share.ledger.position
        if share is None or position is None or offset >= position:
            return False
        return not share.ledger.is_unfinished(offset)


class KeyOrderWithRetries(KeyOrder):
    """By key; and it is told to the parking what comes and goes in the retry topic."""

    def __init__(self, parking: RetryTopic) -> None:
        self._parking = parking

    def add(self, share: PartitionWork, records: list[Record], ready: Ready) -> None:
        """As by key."""
        if share.partition.topic == self._parking.topic:
            self._parking.came(records)
        super().add(share, records, ready)

    def done(self, share: PartitionWork, item: Item, ready: Ready) -> None:
        """As by key."""
        if share.partition.topic == self._parking.topic:
            assert not isinstance(item, list)
            self._parking.went(item)
        super().done(share, item, ready)


def _tidy(keys: dict[bytes, _Waiting], key: bytes) -> None:
    mine = keys.get(key)
    if mine is not None and not mine.offsets and not mine.writing:
        del keys[key]


def attempts_of(record: Record) -> int:
    """How often it was tried before it came to the retry topic."""
    told = parse_failure_headers(record).get("attempts", b"")
    return int(told) if told.isdigit() else 0
