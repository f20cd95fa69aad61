"""The records of one partition in a handler, from its assignment until it is revoked or lost."""

import asyncio
import enum
from collections import deque
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from asyncconsumer.handlers.ledger import Ledger
from asyncconsumer.records.decoding import Record
from asyncconsumer.streams.stream import Fence
from asyncconsumer.types import TopicPartition

if TYPE_CHECKING:
    from asyncconsumer.handlers.acknowledgements import Sent
    from asyncconsumer.handlers.outputs import Outputs
    from asyncconsumer.handlers.priorities import Level

Item: TypeAlias = Record | list[Record]
"""The unit of a handler call: a record, or a batch of one partition."""


class Attempts(NamedTuple):
    """The number of attempts so far to process a record or batch.

    `times` includes the attempts that were made before the record was in a retry topic.
    """

    times: int
    item: Item | None  # the failed item; None if it is in the retry topic


class WorkState(enum.Enum):
    """The state of a partition, which says whether its items may be started."""

    OPEN = enum.auto()
    HELD = enum.auto()  # paused or being revoked; running items continue
    OVER = enum.auto()  # no longer assigned


class PartitionWork:
    """The state of an assigned partition in one handler.

    A `WorkQueue` and its `Ordering` change it.
    """

    def __init__(
        self,
        partition: TopicPartition,
        start: int,
        fence: Fence | None,
        level: "Level",
        former: "PartitionWork | None" = None,
    ) -> None:
        self.partition = partition
        self.fence = fence
        self.level = level  # counts and limits of the topic's priority
        self.ledger = Ledger(start)
        self.state = WorkState.OPEN
        self.count = 0  # records in flight
        self.size = 0  # their bytes
        self.busy: dict[Any, Any] = {}  # records in flight and waiting, as `Ordering` needs
        self.parked: deque[Item] = deque()  # items that became ready during a hold
        self.attempts: dict[int, Attempts] = {}  # by first offset of the item
        self.timers: set[asyncio.TimerHandle] = set()
        self.wakeup = asyncio.Event()  # set when there is room or an item has ended
        self.outputs: dict[int, Outputs] = {}  # by first offset, of an exactly-once app
        self.unacknowledged: dict[Sent, None] = {}  # calls that returned
        self.former = former  # its earlier assignment, if items of that still run

    @property
    def deadline(self) -> float:
        """The loop time after which another member may own the partition."""
        return inf if self.fence is None else self.fence.deadline

    @property
    def deadline_passed(self) -> bool:
        """Whether another member may own the partition, because the deadline has passed."""
        fence = self.fence
        return fence is not None and asyncio.get_running_loop().time() >= fence.deadline

    @property
    def pending_retries(self) -> list[int]:
        """The offsets of records that failed and wait for their next attempt."""
        items = [tried.item for tried in self.attempts.values() if tried.item is not None]
        offsets = [record.offset for item in items for record in records_of(item)]
        return [offset for offset in offsets if self.ledger.is_unfinished(offset)]

    def forget_former(self) -> None:
        """Drop the reference to the partition's earlier assignment.

        Call this when no handler call of that assignment is running any more.
        """
        self.former = None

    def hold(self) -> None:
        """Start no more handler calls for this partition until `release`."""
        if self.state is WorkState.OPEN:
            self.state = WorkState.HELD

    def release(self) -> list[Item]:
        """Allow handler calls again. Return the items that became ready during the hold."""
        if self.state is not WorkState.HELD:
            return []
        self.state = WorkState.OPEN
        self.wakeup.set()
        items = list(self.parked)
        self.parked.clear()
        return items

    def end(self) -> None:
        """Drop all waiting records, because the partition is no longer assigned.

        Handler calls that are running are not affected.
        """
        self.state = WorkState.OVER
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        self.parked.clear()
        self.busy.clear()
        self.ledger.drop_unstarted()
        self.wakeup.set()


class WorkerState:
    """The partition and the item (record or batch) that a worker is processing.

    `sent` has the results of its call, if the call published any.

    During a run (see `WorkQueue`), `item` is None. The worker then processes the next unstarted
    record in the ledger of its partition.
    """

    __slots__ = ("item", "sent", "waited", "work")

    def __init__(self) -> None:
        self.work: PartitionWork | None = None
        self.item: Item | None = None
        self.sent: Sent | None = None
        self.waited = False  # the last run ended because its handler waited


current_worker: Final[ContextVar[WorkerState]] = ContextVar("current_worker")
"""The state of the worker that runs in the current task."""


def first_of(item: Item) -> Record:
    """Return the first record of an item, by which the item is identified."""
    return item[0] if isinstance(item, list) else item


def records_of(item: Item) -> list[Record]:
    """Return the records of an item, which is a record or a batch."""
    return item if isinstance(item, list) else [item]
