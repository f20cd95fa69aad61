"""The priorities of the topics of a handler, and the records in flight of each priority."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from asyncconsumer.config.validation import whole_number
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.partition_work import Item, PartitionWork

_LEFT_TO_OTHERS: Final = 10  # one in this many choices is for lower priorities

ReadyItem = tuple[PartitionWork, Item]


@dataclass(frozen=True, slots=True)
class Load:
    """The number and bytes of the records in flight."""

    count: int
    size: int


@dataclass(slots=True)
class Level:
    """The number and bytes of the records in flight of one priority, and their limits."""

    priority: int
    max_count: int
    max_size: int
    count: int = 0
    size: int = 0


class Levels:
    """The priorities of the topics of a handler. A topic without a priority has the priority 0.

    The limits `max_count` and `max_size` apply to each priority separately. Otherwise waiting
    records of lower priorities could use up the limits.
    """

    def __init__(self, max_count: int, max_size: int, priorities: Mapping[str, int]) -> None:
        self.is_blocked = False  # because outputs of processed records fill the memory
        self._limits = max_count, max_size
        self._priorities = priorities
        self._levels: dict[int, Level] = {}
        self._choices = Counter[int]()  # by priority: how often it was chosen or left out

    def of(self, topic: str) -> Level:
        """Return the records in flight and the limits of the priority that a topic has."""
        priority = self._priorities.get(topic, 0)
        if (level := self._levels.get(priority)) is None:
            level = self._levels[priority] = Level(priority, *self._limits)
        return level

    @property
    def load(self) -> Load:
        """The records in flight of all priorities."""
        levels = self._levels.values()
        return Load(sum(each.count for each in levels), sum(each.size for each in levels))

    def choose(self, priorities: Collection[int]) -> int:
        """Return the element of `priorities` whose records are processed next.

        Nine of ten choices select the highest priority. The tenth is made among the lower ones, by
        the same rule, so that no priority waits forever.
        """
        *higher, lowest = sorted(priorities, reverse=True)
        for priority in higher:
            self._choices[priority] += 1
            if self._choices[priority] % _LEFT_TO_OTHERS:
                return priority
        return lowest

    def next_of(
        self, works: Collection[PartitionWork], priority: int | None
    ) -> PartitionWork | None:
        """Return the first partition in `works` of this priority, or None if there is none.

        If `priority` is None, `choose` selects the priority.
        """
        if not self._priorities or not works:
            return next(iter(works), None)
        if priority is None:
            priority = self.choose({work.level.priority for work in works})
        return next((work for work in works if work.level.priority == priority), None)


class PrioritizedItems:
    """The ready items of a handler that has priorities. The class has the methods of a deque.

    `startable` has the partitions with unstarted records. ``start(priority)`` makes some of the
    unstarted records of a priority ready.
    """

    def __init__(
        self,
        levels: Levels,
        startable: Collection[PartitionWork],
        start: Callable[[int], object],
    ) -> None:
        self._levels = levels
        self._startable = startable
        self._start = start
        self._items = defaultdict[int, deque[ReadyItem]](deque)

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def __iter__(self) -> Iterator[ReadyItem]:
        for items in self._items.values():
            yield from items

    def append(self, entry: ReadyItem) -> None:
        """Append an item to the items of its priority."""
        self._items[entry[0].level.priority].append(entry)

    def appendleft(self, entry: ReadyItem) -> None:
        """Put an item before the other items of its priority."""
        self._items[entry[0].level.priority].appendleft(entry)

    def popleft(self) -> ReadyItem:
        """Remove and return the next item.

        If a higher priority has only unstarted records, some of these are made ready first.
        """
        while True:
            waiting = {priority for priority, items in self._items.items() if items}
            waiting.update(work.level.priority for work in self._startable)
            items = self._items[priority := self._levels.choose(waiting)]
            if not items:
                self._start(priority)
            if items:
                return items.popleft()


def check_priorities(priorities: object) -> None:
    """Raise ConfigError unless `priorities` maps names of topics to whole numbers."""
    if not isinstance(priorities, Mapping) or not all(isinstance(each, str) for each in priorities):
        raise ConfigError(
            f"`priorities` must map topics to numbers, such as {{'urgent': 10}}, got {priorities!r}"
        )
    for topic, priority in priorities.items():
        whole_number(f"priorities[{topic!r}]", priority, -(2**31))
