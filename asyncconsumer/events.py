"""Events of partitions, and the bus that counts, logs and delivers them."""

import asyncio
import logging
import re
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Self, TypeAlias

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_MOST_UNREAD: Final = 1000
_MOST_NAMED: Final = 8


class Skipped(NamedTuple):
    """Offsets that are not in the log and were skipped, from `start` up to, excluding, `stop`.

    If `stop` is smaller than `start`, reading went back, because the log ends before `start`.
    """

    partition: TopicPartition
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.partition} has no offset {self.start}: reading on at {self.stop}"


class Truncated(NamedTuple):
    """A log that was truncated to `offset` after it was read up to `read`.

    New records may get the offsets between. This happens if an out-of-sync replica becomes leader
    (an unclean leader election).
    """

    partition: TopicPartition
    offset: int
    read: int

    def __str__(self) -> str:
        return (
            f"{self.partition} was cut back to offset {self.offset} after it was read up to "
            f"{self.read}: those records are lost to the cluster; reading on at {self.offset}"
        )


class Recreated(NamedTuple):
    """A topic that was deleted and re-created; the old one was read up to `offset`."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition} belongs to a new topic of that name, read up to {self.offset}"


class Stalled(NamedTuple):
    """A partition that may have records to read, and made no progress for `seconds`."""

    partition: TopicPartition
    seconds: float
    reason: str
    unread: bool = False  # records are buffered, and the reader takes none

    def __str__(self) -> str:
        return f"{self.partition} has not moved for {self.seconds:.0f} s: {self.reason}"


class Recovered(NamedTuple):
    """A partition that is not stalled any more, after `seconds`."""

    partition: TopicPartition
    seconds: float

    def __str__(self) -> str:
        return f"{self.partition} moves again after {self.seconds:.0f} s"


class Rebalanced(NamedTuple):
    """A changed assignment. `seconds` is the time from receiving it to fetching."""

    gained: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]  # after their last commit
    lost: frozenset[TopicPartition]  # owned by others before a commit
    seconds: float
    owners: Mapping[TopicPartition, str]  # of all partitions, if known

    def __str__(self) -> str:
        moved = ((self.gained, "gained"), (self.revoked, "gave up"), (self.lost, "lost"))
        told = [f"{how} {_listed(which)}" for which, how in moved if which]
        return f"a rebalance of {self.seconds:.2f} s: {', '.join(told)}"


class RecordUnreadable(NamedTuple):
    """An unreadable record or batch that was skipped."""

    partition: TopicPartition
    offset: int
    policy: str  # skip, or dead_letter
    reason: str

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset} was left out ({self.policy}): {self.reason}"


class Retried(NamedTuple):
    """A record whose handler failed. It is retried after at least `seconds`."""

    partition: TopicPartition
    offset: int
    handler: str
    attempts: int  # so far
    seconds: float
    reason: str

    def __str__(self) -> str:
        return (
            f"handler {self.handler}, {self.partition}@{self.offset}, attempt {self.attempts}: "
            f"{self.reason}; again in {self.seconds:.3g} s"
        )


class RecordAbandoned(NamedTuple):
    """A record that a handler gave up after its last attempt."""

    partition: TopicPartition
    offset: int
    handler: str
    attempts: int
    policy: str  # skip, or dead_letter
    reason: str

    def __str__(self) -> str:
        return (
            f"handler {self.handler} gives up {self.partition}@{self.offset} ({self.policy}) "
            f"after {self.attempts} attempts: {self.reason}"
        )


Event: TypeAlias = (
    Skipped
    | Truncated
    | Recreated
    | Stalled
    | Recovered
    | Rebalanced
    | RecordUnreadable
    | Retried
    | RecordAbandoned
)

_OFTEN: Final = (RecordUnreadable, Retried, RecordAbandoned)  # as often as records
_QUIET: Final = (Recovered,)  # logged as info


def _listed(partitions: frozenset[TopicPartition]) -> str:
    named = ", ".join(map(str, sorted(partitions)[:_MOST_NAMED]))
    more = len(partitions) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named


class EventStream:
    """An async iterator over events, from its creation on.

    It keeps the last 1000 unread events. A slow reader loses the oldest ones.
    """

    def __init__(self) -> None:
        self._unread: deque[Event] = deque(maxlen=_MOST_UNREAD)
        self._bell = asyncio.Event()
        self._over = False

    def hear(self, event: Event) -> None:
        """Add an event."""
        self._unread.append(event)
        self._bell.set()

    def end(self) -> None:
        """End the iteration after the unread events."""
        self._over = True
        self._bell.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event; stop after `end` and the unread events."""
        while not self._unread:
            if self._over:
                raise StopAsyncIteration
            self._bell.clear()
            await self._bell.wait()
        return self._unread.popleft()


def _snake_case(name: str) -> str:
    return "_".join(re.findall("[A-Z][a-z]*", name)).lower()


class EventBus:
    """The event bus: counts events, logs them, and passes them to event streams."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by class name in snake case
        self._on_event: Callable[[Event], None] = lambda event: None
        self._listeners: weakref.WeakSet[EventStream] = weakref.WeakSet()
        self._quiet_logs: dict[type, RateLimitedLogger] = {
            kind: RateLimitedLogger(_log) for kind in (*_OFTEN, Rebalanced)
        }

    def publish(self, event: Event) -> None:
        """Count and log an event, and pass it to all subscribers."""
        self.counts[_snake_case(type(event).__name__)] += 1
        if isinstance(event, _OFTEN):
            self._quiet_logs[type(event)].warning("%s", event)
        elif isinstance(event, Rebalanced):  # rebalances may follow each other quickly
            self._quiet_logs[Rebalanced].info("%s", event)
        else:
            level = logging.INFO if isinstance(event, _QUIET) else logging.WARNING
            _log.log(level, "%s", event)
        self._on_event(event)
        for one in list(self._listeners):
            one.hear(event)

    def on_event(self, heed: Callable[[Event], None]) -> None:
        """Set the callback that is called with each event before event streams."""
        self._on_event = heed

    def listen(self, heard: EventStream | None = None) -> EventStream:
        """Return an event stream of events from now on: a new one, or the given one."""
        heard = heard or EventStream()
        self._listeners.add(heard)
        return heard

    def end(self) -> None:
        """End all event streams."""
        for one in list(self._listeners):
            one.end()
