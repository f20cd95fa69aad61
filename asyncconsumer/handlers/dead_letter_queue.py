"""The dead letters of a topic, which are read by a filter, sent back, or marked as done.

Dead letters can be marked in any order. The marked offsets are kept in the commit of a group, whose
name is that of the topic with the suffix `.dlq`.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.consumer.dead_letters import NotADeadLetter, original, parse_failure_headers
from asyncconsumer.consumer.simple import SimpleConsumer
from asyncconsumer.errors import UnknownTopicOrPartition
from asyncconsumer.handlers.commit_metadata import OffsetWithRanges, Ranges, decode, encode, merged
from asyncconsumer.handlers.replay import send_all
from asyncconsumer.producer.producer import Producer
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.records.decoding import Record
from asyncconsumer.records.record import Headers
from asyncconsumer.types import Offset, TopicPartition

SUFFIX: Final = ".dlq"
"""The suffix of the group whose commits mark the dead letters of a topic as done."""

_DELIVERY_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter: its place in the dead letter topic, its original record, and the failure."""

    partition: int
    offset: int
    written: datetime
    record: Record
    error_type: str
    error_message: str
    attempts: str
    group: str
    handler: str

    @property
    def place(self) -> str:
        """The place of the dead letter in its topic, as `partition:offset`."""
        return f"{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Conditions that a dead letter must meet. A condition of None is always met."""

    error: str | None = None  # a regular expression, searched in "type: message"
    handler: str | None = None
    key: bytes | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    places: Collection[str] | None = None

    def accepts(self, dead_letter: DeadLetter, now: datetime) -> bool:
        """Return whether a dead letter meets all conditions at the time `now`."""
        age = now - dead_letter.written
        text = f"{dead_letter.error_type}: {dead_letter.error_message}"
        return (
            (self.error is None or re.search(self.error, text) is not None)
            and (self.handler is None or self.handler == dead_letter.handler)
            and (self.key is None or self.key == dead_letter.record.key)
            and (self.older_than is None or age >= self.older_than)
            and (self.newer_than is None or age <= self.newer_than)
            and (self.places is None or dead_letter.place in self.places)
        )


class DeadLetterQueue(AsyncResource):
    """The dead letters of one topic. Use it in an ``async with`` block."""

    def __init__(self, topic: str, **options: Any) -> None:  # noqa: ANN401 - of a connection
        self._topic = topic
        self._simple = SimpleConsumer(**options, auto_offset_reset="earliest")
        self._producer = Producer(**options, delivery_timeout_ms=_DELIVERY_TIMEOUT_MS)
        self._group = f"{topic}{SUFFIX}"
        self._done: dict[TopicPartition, tuple[int, Ranges]] = {}  # committed offset and ranges

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._simple)
        await stack.enter_async_context(self._producer)

    async def read(
        self, selection: DeadLetterFilter, *, limit: int | None = None
    ) -> list[DeadLetter]:
        """Return the dead letters that are not done and that the filter accepts, oldest first."""
        numbers = await self._simple.partitions(self._topic)
        if not numbers:
            raise UnknownTopicOrPartition(f"topic {self._topic!r}")
        partitions = [TopicPartition(self._topic, number) for number in numbers]
        await self._load(partitions)
        selected: list[DeadLetter] = []
        now = datetime.now(UTC)
        for tp in partitions:
            start, ranges = self._done[tp]
            end = await self._simple.offsets_before(*tp, LATEST)
            if start >= end:
                continue
            async for record in self._simple.read(*tp, start, end=end):
                dead_letter = _parse(record)
                if (
                    dead_letter is not None
                    and not any(first <= record.offset < stop for first, stop in ranges)
                    and selection.accepts(dead_letter, now)
                ):
                    selected.append(dead_letter)
        return sorted(selected, key=lambda dead_letter: dead_letter.written)[:limit]

    async def send(self, dead_letters: Iterable[DeadLetter], topic: str | None = None) -> None:
        """Send the original records to their original partitions. Do not mark them as done.

        With `topic`, send them to that topic, to the partitions that their keys select.
        """
        records = [dead_letter.record for dead_letter in dead_letters]
        await send_all(self._producer, records, topic)

    async def finish(self, dead_letters: Iterable[DeadLetter]) -> int:
        """Mark dead letters as done. Return how many of them could not be marked.

        The number of marks is limited by the maximum size of commit metadata. The next `read`
        returns dead letters without a mark again.
        """
        offsets = defaultdict(set)
        for dead_letter in dead_letters:
            offsets[TopicPartition(self._topic, dead_letter.partition)].add(dead_letter.offset)
        commits, forgotten = {}, 0
        for tp, done in offsets.items():
            base, before = self._done[tp]
            singles = [(offset, offset + 1) for offset in done]
            ranges = merged(sorted([*before, *singles]))
            if ranges and ranges[0][0] <= base:
                base, ranges = ranges[0][1], ranges[1:]
            metadata = encode(base, ranges)
            stored = decode(base, metadata)
            commits[tp] = OffsetWithRanges(base, metadata=metadata)
            self._done[tp] = base, stored
            forgotten += sum(
                offset >= base and not any(first <= offset < stop for first, stop in stored)
                for offset in done
            )
        if commits:
            await self._simple.commit_offsets(self._group, commits)
        return forgotten

    async def _load(self, partitions: list[TopicPartition]) -> None:
        committed = await self._simple.fetch_offsets(self._group, partitions)
        for tp in partitions:
            start = await self._simple.offsets_before(*tp, EARLIEST)
            stored = committed[tp]
            offset = Offset.of(0 if stored is None else stored)  # a stored 0 may have metadata
            ranges = decode(offset, offset.metadata)
            self._done[tp] = max(int(offset), start), [each for each in ranges if each[1] > start]


def edited(
    dead_letter: DeadLetter, key: bytes | None, value: bytes | None, headers: Headers
) -> DeadLetter:
    """Return a dead letter with another key, value or headers of its original record."""
    record = dead_letter.record
    changed = Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        key=key,
        value=value,
        headers=headers,
    )
    return replace(dead_letter, record=changed)


def _parse(record: Record) -> DeadLetter | None:
    """Return the dead letter in a record, or None if another program wrote the record."""
    try:
        source = original(record)
    except NotADeadLetter:
        return None
    fields = {
        name: text.decode(errors="backslashreplace")
        for name, text in parse_failure_headers(record).items()
    }
    names = ("error.type", "error.message", "attempts", "group", "handler")
    return DeadLetter(
        record.partition,
        record.offset,
        datetime.fromtimestamp(max(record.timestamp, 0) / 1000, UTC),
        source,
        *(fields.get(name, "") for name in names),
    )
