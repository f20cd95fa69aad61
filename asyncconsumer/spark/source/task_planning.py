"""The division of ranges into Spark tasks. Large ranges are split on request, small ones merged.

Each task costs a few milliseconds of a worker. So one task reads a micro-batch of a few thousand
records, even from many partitions. Tasks with large records get fewer of them, because the steps up
to the next shuffle use one core per task.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.types import OffsetRange

_BYTES_PER_TASK: Final = 8 * 2**20


def ranges_to_sample(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """Return the largest range of each topic, if the record size affects the plan."""
    if len(tasks_of(ranges, options)) >= len(ranges):
        return []
    largest = {one.topic: one for one in sorted(ranges, key=_size)}
    return list(largest.values())


def tasks_of(
    ranges: Iterable[OffsetRange],
    options: SourceOptions,
    record_bytes: Mapping[str, int] | None = None,
) -> list[list[OffsetRange]]:
    """Return the ranges of each task. `record_bytes` is the estimated record size by topic."""
    wanted = [one for one in ranges if _size(one) > 0]
    if (most := options.max_records_per_partition) is not None:
        wanted = [part for one in wanted for part in _divided(one, math.ceil(_size(one) / most))]
    least = options.min_partitions
    if least is not None and least > len(wanted):
        wanted = list(_spread(wanted, least))
    if least is not None or most is not None:
        return [[one] for one in wanted]
    return _merged(wanted, options.records_per_task, record_bytes or {})


def _spread(ranges: Sequence[OffsetRange], parts: int) -> Iterator[OffsetRange]:
    """Split ranges into about `parts` parts in proportion to size. Small ones stay whole."""
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


def _merged(
    ranges: Iterable[OffsetRange], records: int, record_bytes: Mapping[str, int]
) -> list[list[OffsetRange]]:
    """Merge small ranges up to `records` or `_BYTES_PER_TASK` per task, largest first."""
    costs = {
        one: _size(one) * max(_BYTES_PER_TASK, record_bytes.get(one.topic, 0) * records)
        for one in ranges
    }
    tasks: list[list[OffsetRange]] = []
    room: list[int] = []
    for one in sorted(costs, key=lambda one: costs[one], reverse=True):
        for number, left in enumerate(room):
            if costs[one] <= left:
                tasks[number].append(one)
                room[number] -= costs[one]
                break
        else:
            tasks.append([one])
            room.append(records * _BYTES_PER_TASK - costs[one])
    return tasks


def _size(one: OffsetRange) -> int:
    return one.end - one.start
