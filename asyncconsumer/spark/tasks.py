"""Ranges as Spark's tasks: large ones are divided if asked for, small ones share a task.

A task costs a worker's attention and a few milliseconds whatever it reads, so a micro-batch of a
few thousand records is read by one task, though it comes from many partitions.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from asyncconsumer.model import OffsetRange
from asyncconsumer.spark.options import SourceOptions


def tasks_of(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[list[OffsetRange]]:
    """What each task reads."""
    wanted = [one for one in ranges if _size(one) > 0]
    if (most := options.max_records_per_partition) is not None:
        wanted = [part for one in wanted for part in _divided(one, math.ceil(_size(one) / most))]
    least = options.min_partitions
    if least is not None and least > len(wanted):
        wanted = list(_spread(wanted, least))
    if least is not None or most is not None:
        return [[one] for one in wanted]
    return _merged(wanted, options.records_per_task)


def _spread(ranges: Sequence[OffsetRange], parts: int) -> Iterator[OffsetRange]:
    """About so many parts, each range according to its size; the small ones are left whole."""
    total = sum(map(_size, ranges))
    whole = {one for one in ranges if _share(_size(one), total, parts) == 1}
    left = max(parts - len(whole), 1)
    rest = total - sum(map(_size, whole))
    for one in ranges:
        yield from _divided(one, 1 if one in whole else _share(_size(one), rest, left))


def _share(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _divided(one: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    start = one.start
    for left in range(parts, 0, -1):
        end = start + (one.end - start) // left
        if end > start:
            yield one._replace(start=start, end=end)
        start = end


def _merged(ranges: Sequence[OffsetRange], enough: int) -> list[list[OffsetRange]]:
    """Small ranges together, up to `enough` records a task; the largest comes first."""
    tasks: list[list[OffsetRange]] = []
    room: list[int] = []
    for one in sorted(ranges, key=_size, reverse=True):
        for number, left in enumerate(room):
            if _size(one) <= left:
                tasks[number].append(one)
                room[number] -= _size(one)
                break
        else:
            tasks.append([one])
            room.append(enough - _size(one))
    return tasks


def _size(one: OffsetRange) -> int:
    return one.end - one.start
