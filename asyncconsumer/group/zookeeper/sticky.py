"""The sticky assignor of ZooKeeper groups. Kafka's own members do not support it.

The assignment is balanced: no chain of moves, each to a thread that reads the topic, makes the
loads more even. Among all balanced assignments it moves the fewest partitions. This is a
minimum-cost flow problem, solved by cycle cancelling. An assignment is optimal if and only if no
cycle of moves has a negative cost.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncconsumer.group.zookeeper.assignors import GroupInfo, OwnerByPartition
    from asyncconsumer.types import TopicPartition


def sticky(group: GroupInfo) -> OwnerByPartition:
    """Return the balanced assignment with the fewest moves.

    Members compute the same assignment only if they have read the same `owners`.
    """
    balance = _Balance(group)
    balance.assign_initially()
    while cycle := balance.find_cycle():
        while balance.is_improvement(cycle):
            balance.apply(cycle)
    return balance.assignment()


class _FlowNode:
    """A node of the flow network: a thread, a group of topics, or `_BALANCE_NODE`."""


class _Thread(_FlowNode):
    """A thread, with the partitions that it keeps (`retained`) and gets (`moved`).

    Both map the number of a `_TopicSet` node to the partitions of that node's topics.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.load = 0
        self.retained: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        self.moved: defaultdict[int, list[TopicPartition]] = defaultdict(list)


class _TopicSet(_FlowNode):
    """All topics that have the same readers, as one node.

    In a cycle, the thread before this node gives a partition of these topics to the thread after
    the node.
    """

    def __init__(self, number: int, readers: Sequence[_Thread]) -> None:
        self.number = number
        self.readers = readers


class _LeastLoaded:
    """A heap of threads, ordered by their number of partitions.

    Threads with equal numbers are ordered by their position in the list.
    """

    def __init__(self, threads: Sequence[_Thread]) -> None:
        self._heap = [(thread.load, place, thread) for place, thread in enumerate(threads)]
        heapify(self._heap)

    def pop(self) -> _Thread:
        """Return the thread with the fewest partitions, and count one more partition for it."""
        while True:
            load, place, thread = self._heap[0]
            if load == thread.load:
                heapreplace(self._heap, (load + 1, place, thread))
                return thread
            # the load in the heap is outdated
            heapreplace(self._heap, (thread.load, place, thread))


_BALANCE_NODE: Final = _FlowNode()
"""The node that connects threads whose load changes.

In a cycle through it, the thread before it gains one partition and the thread after it loses one.
"""

_Cycle = list[_FlowNode]


class _Balance:
    """An assignment that is improved step by step."""

    def __init__(self, group: GroupInfo) -> None:
        subscriptions = group.subscriptions()
        self._partitions = group.subscribed_partitions(subscriptions)
        names = dict.fromkeys(name for readers in subscriptions.values() for name in readers)
        self._threads = {name: _Thread(name) for name in names}
        numbers: dict[tuple[str, ...], int] = {}
        self._kinds = {
            topic: numbers.setdefault(tuple(readers), len(numbers))
            for topic, readers in subscriptions.items()
        }
        self._topics = [
            _TopicSet(number, [self._threads[name] for name in readers])
            for readers, number in numbers.items()
        ]
        self._previous_owner = {
            partition: self._threads[owner]
            for partition in self._partitions
            if (owner := group.owners.get(partition)) in subscriptions[partition.topic]
        }
        # a less even load must cost more than moving every partition
        self._weight = len(self._partitions) + 1

    def assign_initially(self) -> None:
        """Build the initial assignment.

        Partitions stay with their previous owner if it still reads the topic. The others go to the
        least loaded reader, topics with the fewest readers first.
        """
        for partition, owner in self._previous_owner.items():
            self._assign(partition, owner)
        unplaced = [p for p in self._partitions if p not in self._previous_owner]
        least = [_LeastLoaded(kind.readers) for kind in self._topics]
        kinds, topics = self._kinds, self._topics
        for partition in sorted(unplaced, key=lambda p: len(topics[kinds[p.topic]].readers)):
            self._assign(partition, least[kinds[partition.topic]].pop())

    def assignment(self) -> OwnerByPartition:
        """Return the owner of each partition."""
        owners = {
            partition: thread.name
            for thread in self._threads.values()
            for held in (*thread.retained.values(), *thread.moved.values())
            for partition in held
        }
        return {partition: owners[partition] for partition in self._partitions}

    def find_cycle(self) -> _Cycle | None:
        """Return a cycle of moves with a negative cost, or None if the assignment is optimal.

        This is a Bellman-Ford search from all nodes at once. Its predecessor links form a cycle if
        and only if there is a negative cycle.
        """
        steps = [
            (start, end, cost)
            for start, end in self._steps()
            if (cost := self._cost(start, end)) is not None
        ]
        cheapest: defaultdict[_FlowNode, int] = defaultdict(int)
        back: dict[_FlowNode, _FlowNode] = {}
        cycle = None
        changed = True
        while changed and not cycle:
            changed = False
            for start, end, cost in steps:
                if cheapest[start] + cost < cheapest[end]:
                    cheapest[end] = cheapest[start] + cost
                    back[end] = start
                    changed = True
            cycle = _find_cycle(back)
        return cycle

    def is_improvement(self, nodes: _Cycle) -> bool:
        """Return whether a cycle of moves is still possible and has a negative cost."""
        total = 0
        for start, end in pairwise(nodes):
            cost = self._cost(start, end)
            if cost is None:
                return False
            total += cost
        return total < 0

    def apply(self, nodes: _Cycle) -> None:
        """Make the moves of a cycle. Each thread gives one partition to the next thread."""
        moves = []
        for (start, end), (_, after) in zip(
            pairwise(nodes), pairwise([*nodes[1:], nodes[1]]), strict=True
        ):
            if isinstance(start, _Thread) and isinstance(end, _TopicSet):
                assert isinstance(after, _Thread)
                held = start.moved[end.number] or start.retained[end.number]
                moves.append((held.pop(), start, after))
            elif isinstance(start, _Thread) and isinstance(end, _Thread):
                partition = self._moved_from(start, end)
                assert partition is not None
                start.moved[self._kinds[partition.topic]].remove(partition)
                moves.append((partition, start, end))
        for partition, source, target in moves:
            source.load -= 1
            self._assign(partition, target)

    def _assign(self, partition: TopicPartition, thread: _Thread) -> None:
        stays = self._previous_owner.get(partition) is thread
        kind = self._kinds[partition.topic]
        (thread.retained if stays else thread.moved)[kind].append(partition)
        thread.load += 1

    def _steps(self) -> Iterator[tuple[_FlowNode, _FlowNode]]:
        """Yield all edges of the flow network, in an order that makes the search fast."""
        threads = self._threads.values()
        yield from ((_BALANCE_NODE, thread) for thread in threads)
        for thread in threads:
            held = dict.fromkeys((*thread.retained, *thread.moved))
            yield from ((thread, self._topics[kind]) for kind in held)
            owners = (self._previous_owner.get(p) for moved in thread.moved.values() for p in moved)
            yield from ((thread, owner) for owner in dict.fromkeys(owners) if owner is not None)
        for topics in self._topics:
            yield from ((topics, thread) for thread in topics.readers)
        yield from ((thread, _BALANCE_NODE) for thread in threads)

    def _cost(self, start: _FlowNode, end: _FlowNode) -> int | None:
        """Return the cost of an edge of the flow network, or None if the move is not possible.

        It is the change of (sum of the squared loads) * weight + number of moved partitions.
        """
        match start, end:
            case _TopicSet(), _:
                return 0
            case _Thread(), _TopicSet():
                if start.moved[end.number]:
                    return 0
                return 1 if start.retained[end.number] else None
            case _Thread(), _Thread():
                return -1 if self._moved_from(start, end) else None
            case _Thread(), _:
                return self._weight * (2 * start.load + 1)
            case _, _Thread():
                return -self._weight * (2 * end.load - 1) if end.load else None
        raise AssertionError("unreachable")

    def _moved_from(self, thread: _Thread, owner: _Thread) -> TopicPartition | None:
        """Return a partition that moved from `owner` to `thread`, or None if there is none."""
        moved = (p for held in thread.moved.values() for p in held)
        return next((p for p in moved if self._previous_owner.get(p) is owner), None)


def _find_cycle(back: dict[_FlowNode, _FlowNode]) -> _Cycle | None:
    """Return a cycle in `back`, which maps each node to its predecessor, or None without one.

    The cycle is in forward order and ends with the node with which it starts.
    """
    seen: set[_FlowNode] = set()
    for begin in back:
        path: dict[_FlowNode, None] = {}
        node: _FlowNode | None = begin
        while node is not None and node not in seen:
            seen.add(node)
            path[node] = None
            node = back.get(node)
        if node in path and node is not None:
            nodes = list(path)
            cycle = nodes[nodes.index(node) :]
            return [node, *reversed(cycle)]
    return None
