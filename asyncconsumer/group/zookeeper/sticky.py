"""A balanced assignment that moves as few partitions as it can. For groups of our own members.

Balanced means: no chain of hand-overs, each to a thread that reads the topic, would leave the
threads with more even numbers of partitions. Among all such assignments this one leaves the most
partitions where they were. Together that is a flow of least cost, and it is solved as one: an
assignment is the best if and only if no round of hand-overs makes it cheaper.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncconsumer.group.zookeeper.assignors import Assignment, GroupInfo
    from asyncconsumer.types import TopicPartition


def sticky(group: GroupInfo) -> Assignment:
    """Every member must be given the same `owners`, or they will not agree."""
    balance = _Balance(group)
    balance.settle()
    while found := balance.find_round():
        while balance.worth(found):
            balance.hand_over(found)
    return balance.assignment()


class _Stop:
    """Somewhere that a round of hand-overs passes through: a thread, a topic, or the rim."""


class _Thread(_Stop):
    """A thread, and by kind of topic the partitions it had before and those that are new to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.load = 0
        self.at_home: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        self.strays: defaultdict[int, list[TopicPartition]] = defaultdict(list)


class _Topics(_Stop):
    """Topics with the same readers, which are many in a usual group.

    On a round, the thread before it gives one of their partitions to the one after.
    """

    def __init__(self, number: int, readers: Sequence[_Thread]) -> None:
        self.number = number
        self.readers = readers


class _LeastLoaded:
    """Which of some threads has the least to read, the first of several such."""

    def __init__(self, threads: Sequence[_Thread]) -> None:
        self._heap = [(thread.load, place, thread) for place, thread in enumerate(threads)]
        heapify(self._heap)

    def pop(self) -> _Thread:
        """The one to give a partition to now."""
        while True:
            load, place, thread = self._heap[0]
            if load == thread.load:
                heapreplace(self._heap, (load + 1, place, thread))
                return thread
            heapreplace(self._heap, (thread.load, place, thread))  # it was given others since


_RIM: Final = _Stop()
"""A round that passes here takes a partition from the thread behind it for the one before."""

_Round = list[_Stop]


class _Balance:
    """An assignment on its way to the best."""

    def __init__(self, group: GroupInfo) -> None:
        subscriptions = group.subscriptions()
        self._partitions = group.wanted(subscriptions)
        names = dict.fromkeys(name for readers in subscriptions.values() for name in readers)
        self._threads = {name: _Thread(name) for name in names}
        numbers: dict[tuple[str, ...], int] = {}
        self._kinds = {
            topic: numbers.setdefault(tuple(readers), len(numbers))
            for topic, readers in subscriptions.items()
        }
        self._topics = [
            _Topics(number, [self._threads[name] for name in readers])
            for readers, number in numbers.items()
        ]
        self._home = {
            partition: self._threads[owner]
            for partition in self._partitions
            if (owner := group.owners.get(partition)) in subscriptions[partition.topic]
        }
        # one more uneven load must cost more than moving every partition
        self._weight = len(self._partitions) + 1

    def settle(self) -> None:
        """Leave what can stay; the rest to who has least, topics with the fewest readers first."""
        for partition, home in self._home.items():
            self._give(partition, home)
        unplaced = [p for p in self._partitions if p not in self._home]
        least = [_LeastLoaded(one.readers) for one in self._topics]
        kinds, topics = self._kinds, self._topics
        for partition in sorted(unplaced, key=lambda p: len(topics[kinds[p.topic]].readers)):
            self._give(partition, least[kinds[partition.topic]].pop())

    def assignment(self) -> Assignment:
        """The owner of each partition."""
        owners = {
            partition: thread.name
            for thread in self._threads.values()
            for held in (*thread.at_home.values(), *thread.strays.values())
            for partition in held
        }
        return {partition: owners[partition] for partition in self._partitions}

    def find_round(self) -> _Round | None:
        """A round of hand-overs that costs less than nothing; None once this is the best.

        The search of Bellman and Ford, begun everywhere at once: the steps that it would take
        back form a circle if and only if there is such a round.
        """
        steps = [
            (start, end, cost)
            for start, end in self._steps()
            if (cost := self._cost(start, end)) is not None
        ]
        cheapest: defaultdict[_Stop, int] = defaultdict(int)
        back: dict[_Stop, _Stop] = {}
        found = None
        changed = True
        while changed and not found:
            changed = False
            for start, end, cost in steps:
                if cheapest[start] + cost < cheapest[end]:
                    cheapest[end] = cheapest[start] + cost
                    back[end] = start
                    changed = True
            found = _circle(back)
        return found

    def worth(self, stops: _Round) -> bool:
        """Whether the round can be made, again, and costs less than nothing."""
        total = 0
        for start, end in pairwise(stops):
            cost = self._cost(start, end)
            if cost is None:
                return False
            total += cost
        return total < 0

    def hand_over(self, stops: _Round) -> None:
        """Make the round: each thread on it gives one partition to the next."""
        moves = []
        for (start, end), (_, after) in zip(
            pairwise(stops), pairwise([*stops[1:], stops[1]]), strict=True
        ):
            if isinstance(start, _Thread) and isinstance(end, _Topics):
                assert isinstance(after, _Thread)
                held = start.strays[end.number] or start.at_home[end.number]
                moves.append((held.pop(), start, after))
            elif isinstance(start, _Thread) and isinstance(end, _Thread):
                partition = self._stray_of(start, end)
                assert partition is not None
                start.strays[self._kinds[partition.topic]].remove(partition)
                moves.append((partition, start, end))
        for partition, giver, taker in moves:
            giver.load -= 1
            self._give(partition, taker)

    def _give(self, partition: TopicPartition, thread: _Thread) -> None:
        stays = self._home.get(partition) is thread
        kind = self._kinds[partition.topic]
        (thread.at_home if stays else thread.strays)[kind].append(partition)
        thread.load += 1

    def _steps(self) -> Iterator[tuple[_Stop, _Stop]]:
        """Every step that a round might take, in an order that the search is quick with."""
        threads = self._threads.values()
        yield from ((_RIM, thread) for thread in threads)
        for thread in threads:
            held = dict.fromkeys((*thread.at_home, *thread.strays))
            yield from ((thread, self._topics[kind]) for kind in held)
            homes = (self._home.get(p) for strays in thread.strays.values() for p in strays)
            yield from ((thread, home) for home in dict.fromkeys(homes) if home is not None)
        for topics in self._topics:
            yield from ((topics, thread) for thread in topics.readers)
        yield from ((thread, _RIM) for thread in threads)

    def _cost(self, start: _Stop, end: _Stop) -> int | None:
        """What the step changes in (sum of the squared loads) * weight + partitions moved."""
        match start, end:
            case _Topics(), _:
                return 0
            case _Thread(), _Topics():
                if start.strays[end.number]:
                    return 0
                return 1 if start.at_home[end.number] else None
            case _Thread(), _Thread():
                return -1 if self._stray_of(start, end) else None
            case _Thread(), _:
                return self._weight * (2 * start.load + 1)
            case _, _Thread():
                return -self._weight * (2 * end.load - 1) if end.load else None
        raise AssertionError("unreachable")

    def _stray_of(self, thread: _Thread, home: _Thread) -> TopicPartition | None:
        """A partition that the thread has and that could go back to where it was."""
        strays = (p for held in thread.strays.values() for p in held)
        return next((p for p in strays if self._home.get(p) is home), None)


def _circle(back: dict[_Stop, _Stop]) -> _Round | None:
    """A circle among the steps back, turned forward, its first stop again at the end."""
    seen: set[_Stop] = set()
    for begin in back:
        path: dict[_Stop, None] = {}
        stop: _Stop | None = begin
        while stop is not None and stop not in seen:
            seen.add(stop)
            path[stop] = None
            stop = back.get(stop)
        if stop in path and stop is not None:
            stops = list(path)
            circle = stops[stops.index(stop) :]
            return [stop, *reversed(circle)]
    return None
