"""What happens to partitions that somebody should know of, as values; counted, logged, and told."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

from asyncconsumer.model import TopicPartition

_log: Final = logging.getLogger(__name__)
_MOST_UNREAD: Final = 1000


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

    def __str__(self) -> str:
        return f"{self.partition} has not moved for {self.seconds:.0f} s: {self.reason}"


class Recovered(NamedTuple):
    """A partition that was stalled for so many seconds moves again, or need not any more."""

    partition: TopicPartition
    seconds: float

    def __str__(self) -> str:
        return f"{self.partition} moves again after {self.seconds:.0f} s"


Event: TypeAlias = Skipped | Truncated | Recreated | Stalled | Recovered


class Events:
    """Counts events, logs them as warnings, and hands them to whoever listens.

    A listener that does not keep up loses the oldest, and nobody waits for it.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by the name of the kind, in lower case
        self._listeners: list[tuple[deque[Event], asyncio.Event]] = []

    def tell(self, event: Event) -> None:
        """It happened."""
        self.counts[type(event).__name__.lower()] += 1
        level = logging.INFO if isinstance(event, Recovered) else logging.WARNING
        _log.log(level, "%s", event)
        for unread, bell in self._listeners:
            unread.append(event)
            bell.set()

    @contextmanager
    def listen(self) -> Iterator[AsyncIterator[Event]]:
        """``with events.listen() as heard: async for event in heard``: those from now on."""
        listener: tuple[deque[Event], asyncio.Event]
        listener = deque(maxlen=_MOST_UNREAD), asyncio.Event()
        self._listeners.append(listener)
        try:
            yield _heard(*listener)
        finally:
            self._listeners.remove(listener)


async def _heard(unread: deque[Event], bell: asyncio.Event) -> AsyncIterator[Event]:
    while True:
        while unread:
            yield unread.popleft()
        bell.clear()
        await bell.wait()
