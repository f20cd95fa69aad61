"""The division of offset ranges into Spark tasks.

Each range is a task. Large ranges are split on request, and small ones are merged on request.

Each task costs a few milliseconds of a worker, so merged tasks make micro-batches faster. But the
steps up to the next shuffle use one core per task. If they are slow, they need many tasks.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.types import OffsetRange

_BYTES_PER_TASK: Final = 8 * 2**20


def ranges_to_sample(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """Return the largest range of each topic, to estimate its record size.

    Return an empty list if no ranges would be merged, because the plan then needs no estimate.
    """
    if len(plan_tasks(ranges, options)) >= len(ranges):
        return []
    largest = {offsets.topic: offsets for offsets in sorted(ranges, key=_size)}
    return list(largest.values())


def plan_tasks(
    ranges: Iterable[OffsetRange],
    options: SourceOptions,
    record_bytes: Mapping[str, int] | None = None,
) -> list[list[OffsetRange]]:
    """Return a list with the offset ranges of each task.

    `record_bytes` maps topics to estimated record sizes.
    """
    planned = [offsets for offsets in ranges if _size(offsets) > 0]
    if (max_records := options.max_records_per_partition) is not None:
        planned = [
            part
            for offsets in planned
            for part in _split(offsets, math.ceil(_size(offsets) / max_records))
        ]
    min_tasks = options.min_partitions
    if min_tasks is not None and min_tasks > len(planned):
        planned = list(_split_all(planned, min_tasks))
    records_per_task = options.records_per_task
    if records_per_task is None or min_tasks is not None or max_records is not None:
        return [[offsets] for offsets in planned]
    return _merge(planned, records_per_task, record_bytes or {})


def _split_all(ranges: Sequence[OffsetRange], parts: int) -> Iterator[OffsetRange]:
    """Split the ranges into about `parts` parts, in proportion to their sizes.

    Small ranges stay whole.
    """
    total = sum(map(_size, ranges))
    whole = {offsets for offsets in ranges if _part_count(_size(offsets), total, parts) == 1}
    remaining_parts = max(parts - len(whole), 1)
    remaining_size = total - sum(map(_size, whole))
    for offsets in ranges:
        if offsets in whole:
            yield offsets
        else:
            count = _part_count(_size(offsets), remaining_size, remaining_parts)
            yield from _split(offsets, count)


def _part_count(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _split(offsets: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    start = offsets.start
    for remaining in range(parts, 0, -1):
        end = start + (offsets.end - start) // remaining
        if end > start:
            yield offsets._replace(start=start, end=end)
        start = end


def _merge(
    ranges: Iterable[OffsetRange], records: int, record_bytes: Mapping[str, int]
) -> list[list[OffsetRange]]:
    """Merge small ranges into tasks of at most `records` records and `_BYTES_PER_TASK` bytes.

    `record_bytes` maps topics to estimated record sizes.
    """
    costs = {
        offsets: _size(offsets) * max(_BYTES_PER_TASK, record_bytes.get(offsets.topic, 0) * records)
        for offsets in ranges
    }
    tasks: list[list[OffsetRange]] = []
    room: list[int] = []
    for offsets in sorted(costs, key=lambda offsets: costs[offsets], reverse=True):
        cost = costs[offsets]
        for number, remaining in enumerate(room):
            if cost <= remaining:
                tasks[number].append(offsets)
                room[number] -= cost
                break
        else:
            tasks.append([offsets])
            room.append(records * _BYTES_PER_TASK - cost)
    return tasks


def _size(offsets: OffsetRange) -> int:
    return offsets.end - offsets.start
