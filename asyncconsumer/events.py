"""What happens to partitions that somebody should know of, as values; counted, logged, and told."""

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
    """Offsets that were not there to be read: from `start` up to, not including, `stop`.

    When `stop` is the smaller one, reading went back: the log ends before where it was to go on.
    """

    partition: TopicPartition
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.partition} has no offset {self.start}: reading on at {self.stop}"


class Truncated(NamedTuple):
    """The log was cut back below what was read: the offsets from `offset` to `read` are others now.

    It happens when a replica that had not got everything became leader (an unclean election).
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
    """The topic was deleted and made anew: `offset` is where the old one was read up to."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition} belongs to a new topic of that name, read up to {self.offset}"


class Stalled(NamedTuple):
    """There is, or may be, something to read, and nothing has moved for so many seconds."""

    partition: TopicPartition
    seconds: float
    reason: str
    unread: bool = False  # it is here, and its reader does not take it

    def __str__(self) -> str:
        return f"{self.partition} has not moved for {self.seconds:.0f} s: {self.reason}"


class Recovered(NamedTuple):
    """A partition that was stalled for so many seconds moves again, or need not any more."""

    partition: TopicPartition
    seconds: float

    def __str__(self) -> str:
        return f"{self.partition} moves again after {self.seconds:.0f} s"


class Rebalanced(NamedTuple):
    """What is ours became something else. It took so long from hearing of it to reading."""

    gained: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]  # given up in good order
    lost: frozenset[TopicPartition]  # taken away
    seconds: float
    owners: Mapping[TopicPartition, str]  # who reads what now, as far as a member is told

    def __str__(self) -> str:
        moved = ((self.gained, "gained"), (self.revoked, "gave up"), (self.lost, "lost"))
        told = [f"{how} {_listed(which)}" for which, how in moved if which]
        return f"a rebalance of {self.seconds:.2f} s: {', '.join(told)}"


class RecordUnreadable(NamedTuple):
    """What is at this place cannot be read, and was left out."""

    partition: TopicPartition
    offset: int
    policy: str  # skip, or dead_letter
    reason: str

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset} was left out ({self.policy}): {self.reason}"


class Retried(NamedTuple):
    """A handler failed with a record: it is tried again, after so many seconds at the least."""

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
    """A handler could not deal with a record, and goes on without it."""

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

_OFTEN: Final = (RecordUnreadable, Retried, RecordAbandoned)  # as often as there are records
_QUIET: Final = (Recovered,)  # as it should be


def _listed(partitions: frozenset[TopicPartition]) -> str:
    named = ", ".join(map(str, sorted(partitions)[:_MOST_NAMED]))
    more = len(partitions) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named


class EventStream:
    """``async for event in heard``: what happens from when it was made, until it is dropped.

    Who does not keep up loses the oldest; nobody waits for it.
    """

    def __init__(self) -> None:
        self._unread: deque[Event] = deque(maxlen=_MOST_UNREAD)
        self._bell = asyncio.Event()
        self._over = False

    def hear(self, event: Event) -> None:
        """It happened."""
        self._unread.append(event)
        self._bell.set()

    def end(self) -> None:
        """Nothing more will happen."""
        self._over = True
        self._bell.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next one; after the last one of all the end."""
        while not self._unread:
            if self._over:
                raise StopAsyncIteration
            self._bell.clear()
            await self._bell.wait()
        return self._unread.popleft()


def _snake_case(name: str) -> str:
    return "_".join(re.findall("[A-Z][a-z]*", name)).lower()


class EventBus:
    """Counts events, logs them, and hands them to whoever listens."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by the name of the kind, in snake case
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
        elif isinstance(event, Rebalanced):  # a coordinator may have one follow the other
            self._quiet_logs[Rebalanced].info("%s", event)
        else:
            level = logging.INFO if isinstance(event, _QUIET) else logging.WARNING
            _log.log(level, "%s", event)
        self._on_event(event)
        for one in list(self._listeners):
            one.hear(event)

    def on_event(self, heed: Callable[[Event], None]) -> None:
        """Have this one act on what happens before anything else does."""
        self._on_event = heed

    def listen(self, heard: EventStream | None = None) -> EventStream:
        """What happens from now on; or have it heard by one that hears of other things, too."""
        heard = heard or EventStream()
        self._listeners.add(heard)
        return heard

    def end(self) -> None:
        """Nothing more will happen: who listens comes to the end."""
        for one in list(self._listeners):
            one.end()
