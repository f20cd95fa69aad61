"""One partition in a handler's hands, from when it is ours until it is not."""

import asyncio
import enum
from collections import deque
from typing import Any, NamedTuple, TypeAlias

from asyncconsumer.handlers.ledger import Ledger
from asyncconsumer.records.decoding import Record
from asyncconsumer.streams.stream import Fence
from asyncconsumer.types import TopicPartition

Item: TypeAlias = Record | list[Record]
"""What a handler is called with: a record, or a batch of one partition."""


class Attempts(NamedTuple):
    """How often something was tried, here or before it came here."""

    times: int
    item: Item | None  # that failed here; None if it waits in the retry topic


class WorkState(enum.Enum):
    """Whether something of it may be begun."""

    OPEN = enum.auto()
    HELD = enum.auto()  # paused, or about to be given up: what was begun goes on
    OVER = enum.auto()  # not ours any more


class PartitionWork:
    """What is known of a partition while it is ours. `Lanes` and their order work on it."""

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
        self.count = 0  # records that were taken in and are not finished
        self.size = 0  # their bytes
        self.lanes: dict[Any, Any] = {}  # what waits for its turn, as the order likes to keep it
        self.parked: deque[Item] = deque()  # whose turn came while it was held
        self.attempts: dict[int, Attempts] = {}  # of what is to be tried again, by its first offset
        self.timers: set[asyncio.TimerHandle] = set()
        self.bell = asyncio.Event()  # rung when there is room, or something was finished
        self.former = former  # the same partition, when it was ours before, not at its end yet

    @property
    def deadline_passed(self) -> bool:
        """Whether it may be somebody else's by now, for all we know."""
        fence = self.fence
        return fence is not None and asyncio.get_running_loop().time() >= fence.deadline

    @property
    def pending_retries(self) -> list[int]:
        """The offsets of what failed, and was not tried again yet."""
        items = [tried.item for tried in self.attempts.values() if tried.item is not None]
        offsets = [record.offset for item in items for record in records_of(item)]
        return [one for one in offsets if self.ledger.is_unfinished(one)]

    def alone(self) -> None:
        """What was worked on before has come to its end."""
        self.former = None

    def hold(self) -> None:
        """Begin nothing more of it."""
        if self.state is WorkState.OPEN:
            self.state = WorkState.HELD

    def release(self) -> list[Item]:
        """Go on; what may be begun now."""
        if self.state is not WorkState.HELD:
            return []
        self.state = WorkState.OPEN
        self.bell.set()
        items = list(self.parked)
        self.parked.clear()
        return items

    def end(self) -> None:
        """Forget what waits: it is somebody else's."""
        self.state = WorkState.OVER
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        self.parked.clear()
        self.lanes.clear()
        self.bell.set()


def first_of(item: Item) -> Record:
    """The record by which an item is known."""
    return item[0] if isinstance(item, list) else item


def records_of(item: Item) -> list[Record]:
    """Its records."""
    return item if isinstance(item, list) else [item]


def size_of(record: Record) -> int:
    """About how many bytes of memory a record takes."""
    key, value = record.key, record.value
    size = 200
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    for name, content in record.headers:
        size += len(name) + len(content or b"") + 100
    return size
