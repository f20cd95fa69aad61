"""Events about partitions, and the bus that counts, logs and delivers them."""

import asyncio
import logging
import re
import weakref
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final, NamedTuple, Self, TypeAlias

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
_MAX_UNREAD: Final = 1000
_MAX_LISTED: Final = 8


class Skipped(NamedTuple):
    """A gap in the log that a reader has skipped: the offsets from `start` to before `stop`.

    If `stop` is smaller than `start`, reading went back to `stop`, because the log ends before
    `start`.
    """

    partition: TopicPartition
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.partition} has no offset {self.start}: reading continues at {self.stop}"


class Truncated(NamedTuple):
    """A truncation of a log to `offset`, after records up to `read` were read.

    New records may get the offsets from `offset` to before `read`. This happens if an out-of-sync
    replica becomes leader (an unclean leader election).
    """

    partition: TopicPartition
    offset: int
    read: int

    def __str__(self) -> str:
        return (
            f"{self.partition} was truncated to offset {self.offset} after it was read up to "
            f"{self.read}: the records between are lost; reading continues at {self.offset}"
        )


class Recreated(NamedTuple):
    """A deletion and re-creation of a topic. The old topic was read up to `offset`."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return (
            f"{self.partition} belongs to a re-created topic; the deleted one was read up to "
            f"{self.offset}"
        )


class Stalled(NamedTuple):
    """A partition that may have records to read, and made no progress for `seconds`."""

    partition: TopicPartition
    seconds: float
    reason: str
    unread: bool = False  # records are buffered, and the reader takes none

    def __str__(self) -> str:
        return f"{self.partition} made no progress for {self.seconds:.0f} s: {self.reason}"


class Recovered(NamedTuple):
    """A partition that makes progress again after it was stalled for `seconds`."""

    partition: TopicPartition
    seconds: float

    def __str__(self) -> str:
        return f"{self.partition} makes progress again after {self.seconds:.0f} s"


class Rebalanced(NamedTuple):
    """A changed assignment.

    `seconds` is the time from the receipt of the assignment until the first fetch request.
    """

    gained: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]  # released after the last commit of their offsets
    lost: frozenset[TopicPartition]  # without a commit, because other members may own them
    seconds: float
    owners: Mapping[TopicPartition, str]  # of all partitions, if known

    def __str__(self) -> str:
        changes = (("gained", self.gained), ("revoked", self.revoked), ("lost", self.lost))
        parts = [f"{verb} {_listed(partitions)}" for verb, partitions in changes if partitions]
        return f"a rebalance of {self.seconds:.2f} s: {', '.join(parts)}"


class RecordUnreadable(NamedTuple):
    """An unreadable record or batch that was skipped."""

    partition: TopicPartition
    offset: int
    policy: str  # skip, or dead_letter
    reason: str

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset} was skipped ({self.policy}): {self.reason}"


class Retried(NamedTuple):
    """A record whose handler failed. It is retried after at least `seconds`."""

    partition: TopicPartition
    offset: int
    handler: str
    attempts: int  # attempts so far
    seconds: float
    reason: str
    traceback: str = ""  # of the handler, without messages; empty if a value is not readable

    def __str__(self) -> str:
        return (
            f"handler {self.handler}, {self.partition}@{self.offset}, attempt {self.attempts}: "
            f"{self.reason}; retried in {self.seconds:.3g} s"
        )


class RecordAbandoned(NamedTuple):
    """A record that was given up after its handler failed in the last attempt."""

    partition: TopicPartition
    offset: int
    handler: str
    attempts: int
    policy: str  # skip, or dead_letter
    reason: str
    traceback: str = ""  # as in `Retried`

    def __str__(self) -> str:
        return (
            f"handler {self.handler} abandoned {self.partition}@{self.offset} ({self.policy}) "
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

_FREQUENT: Final = (RecordUnreadable, Retried, RecordAbandoned)  # up to one per record
_INFO: Final = (Recovered,)  # logged as info


def _listed(partitions: frozenset[TopicPartition]) -> str:
    named = ", ".join(map(str, sorted(partitions)[:_MAX_LISTED]))
    more = len(partitions) - _MAX_LISTED
    return f"{named} and {more} more" if more > 0 else named


class EventStream:
    """An async iterator over events that are published after its creation.

    It keeps the last 1000 unread events. A slow reader loses the oldest ones.
    """

    def __init__(self) -> None:
        self._unread: deque[Event] = deque(maxlen=_MAX_UNREAD)
        self._wakeup = asyncio.Event()
        self._ended = False

    def add(self, event: Event) -> None:
        """Add an event to the unread ones."""
        self._unread.append(event)
        self._wakeup.set()

    def end(self) -> None:
        """End the iteration after the unread events."""
        self._ended = True
        self._wakeup.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event and return it.

        After `end`, the remaining unread events are returned, and then the iteration stops.
        """
        while not self._unread:
            if self._ended:
                raise StopAsyncIteration
            self._wakeup.clear()
            await self._wakeup.wait()
        return self._unread.popleft()


def _snake_case(name: str) -> str:
    return "_".join(re.findall("[A-Z][a-z]*", name)).lower()


class EventBus:
    """A bus that counts events, logs them, and passes them to event streams."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by class name in snake case
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()
        self._limited_logs: dict[type, RateLimitedLogger] = {
            kind: RateLimitedLogger(_log) for kind in (*_FREQUENT, Rebalanced)
        }

    def publish(self, event: Event) -> None:
        """Count and log an event, and pass it to all event streams."""
        self.counts[_snake_case(type(event).__name__)] += 1
        if isinstance(event, _FREQUENT):
            self._limited_logs[type(event)].warning("%s", event)
        elif isinstance(event, Rebalanced):  # rebalances may follow each other quickly
            self._limited_logs[Rebalanced].info("%s", event)
        else:
            level = logging.INFO if isinstance(event, _INFO) else logging.WARNING
            _log.log(level, "%s", event)
        for stream in list(self._streams):
            stream.add(event)

    def listen(self, stream: EventStream | None = None) -> EventStream:
        """Add an event stream, which gets all later events. Return it.

        Without `stream`, a new one is created.
        """
        stream = stream or EventStream()
        self._streams.add(stream)
        return stream

    @property
    def has_listeners(self) -> bool:
        """Whether at least one event stream gets the events."""
        return bool(self._streams)

    def end(self) -> None:
        """End all event streams."""
        for stream in list(self._streams):
            stream.end()
