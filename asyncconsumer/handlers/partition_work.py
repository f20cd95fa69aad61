"""The records of one partition in a handler, from its assignment until it is revoked or lost."""

import asyncio
import enum
from collections import deque
from typing import Any, NamedTuple, TypeAlias

from asyncconsumer.handlers.ledger import Ledger
from asyncconsumer.records.decoding import Record
from asyncconsumer.streams.stream import Fence
from asyncconsumer.types import TopicPartition

Item: TypeAlias = Record | list[Record]
"""The unit of a handler call: a record, or a batch of one partition."""


class Attempts(NamedTuple):
    """The number of attempts at an item, including those before the retry topic."""

    times: int
    item: Item | None  # the failed item; None if it is in the retry topic


class WorkState(enum.Enum):
    """Whether items of a partition may be started."""

    OPEN = enum.auto()
    HELD = enum.auto()  # paused or being revoked; running items continue
    OVER = enum.auto()  # no longer assigned


class PartitionWork:
    """The state of an assigned partition, changed by a `WorkQueue` and its `Ordering`."""

    def __init__(
        self,
        partition: TopicPartition,
        start: int,
        fence: Fence | None,
        former: "PartitionWork | None" = None,
    ) -> None:
        self.partition = partition
        self.fence = fence
        self.ledger = Ledger(start)
        self.state = WorkState.OPEN
        self.count = 0  # records in flight
        self.size = 0  # their bytes
        self.lanes: dict[Any, Any] = {}  # waiting records, in the form that the `Ordering` keeps
        self.parked: deque[Item] = deque()  # items that became ready while held
        self.attempts: dict[int, Attempts] = {}  # by first offset of the item
        self.timers: set[asyncio.TimerHandle] = set()
        self.bell = asyncio.Event()  # set when there is room or an item has ended
        self.former = former  # of an earlier assignment, with items that still run

    @property
    def deadline_passed(self) -> bool:
        """Whether the deadline has passed, so that another member may own the partition."""
        fence = self.fence
        return fence is not None and asyncio.get_running_loop().time() >= fence.deadline

    @property
    def pending_retries(self) -> list[int]:
        """The offsets of records that failed and wait for their next attempt."""
        items = [tried.item for tried in self.attempts.values() if tried.item is not None]
        offsets = [record.offset for item in items for record in records_of(item)]
        return [one for one in offsets if self.ledger.is_unfinished(one)]

    def alone(self) -> None:
        """Drop the reference to the earlier assignment, whose items have ended."""
        self.former = None

    def hold(self) -> None:
        """Start no more items."""
        if self.state is WorkState.OPEN:
            self.state = WorkState.HELD

    def release(self) -> list[Item]:
        """Resume. Return the items that became ready meanwhile."""
        if self.state is not WorkState.HELD:
            return []
        self.state = WorkState.OPEN
        self.bell.set()
        items = list(self.parked)
        self.parked.clear()
        return items

    def end(self) -> None:
        """Drop all waiting items, because the partition is no longer assigned."""
        self.state = WorkState.OVER
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        self.parked.clear()
        self.lanes.clear()
        self.bell.set()


def first_of(item: Item) -> Record:
    """Return the first record of an item, which identifies the item."""
    return item[0] if isinstance(item, list) else item


def records_of(item: Item) -> list[Record]:
    """Return the records of an item."""
    return item if isinstance(item, list) else [item]


def size_of(record: Record) -> int:
    """Return the approximate size of a record in memory, in bytes."""
    key, value = record.key, record.value
    size = 200
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    for name, content in record.headers:
        size += len(name) + len(content or b"") + 100
    return size
