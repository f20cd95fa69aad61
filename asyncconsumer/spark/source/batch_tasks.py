"""The tasks of batch queries. Their offsets are looked up when they run, not when they are planned.

Spark 4.2 plans a Python source once for each `load()`, and uses the plan for every later query on
it: the static side of a join with a stream, a view, a DataFrame that is used again. So a task does
not have fixed offsets. It has windows, which are ranges of possible offsets. Each execution reads
the part of a window between the current starting and ending offsets. The windows of a partition
cover all offsets, so they include records that arrive later.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.selection import (
    Matching,
    OffsetBound,
    SubscribedTopicNames,
    restrict,
)
from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.spark.source.client import Client
from asyncconsumer.spark.source.pushdown import PushedFilters
from asyncconsumer.spark.source.resolve import check_complete, resolve
from asyncconsumer.spark.source.task import Task
from asyncconsumer.spark.source.task_planning import plan_tasks
from asyncconsumer.types import OffsetRange, TopicPartition


@dataclass(frozen=True)
class Unplanned:
    """The partitions of a query that did not exist when it was planned.

    `planned` has the partitions that existed.
    """

    planned: frozenset[TopicPartition]
    filters: PushedFilters


class BatchTask(InputPartition):
    """The offset windows that one Spark task of a batch query reads.

    One task of each plan has the attribute `unplanned`. That task also reads partitions that were
    added after planning.
    """

    def __init__(
        self,
        windows: Sequence[OffsetRange],
        topic_ids: Mapping[str, UUID],
        unplanned: Unplanned | None = None,
    ) -> None:
        super().__init__(windows)
        self.windows = windows
        self.topic_ids = topic_ids
        self.unplanned = unplanned

    async def bind(self, client: Client, options: SourceOptions) -> Task:
        """Return a task with the offset ranges to read now.

        Raise ConfigError if the query's options do not fit the partitions that exist now.
        """
        existing = await self._existing(client, options)
        windows = [window for window in self.windows if _partition(window) in existing]
        if self.unplanned is not None:
            added = existing - self.unplanned.planned
            if added:
                check_complete(options.starting, existing)
                check_complete(options.ending, existing)
            windows += self.unplanned.filters.windows(added)
        bounds = await resolve_bounds(client, options, {_partition(window) for window in windows})
        return Task(cut(windows, bounds), self.topic_ids)

    async def _existing(self, client: Client, options: SourceOptions) -> frozenset[TopicPartition]:
        """Return the partitions that exist now.

        A task with `unplanned` looks up all partitions that the query selects. Other tasks look up
        only the topics of their windows.
        """
        if self.unplanned is not None:
            return await client.partitions(options.selection)
        topics = sorted({window.topic for window in self.windows})
        matching = isinstance(options.selection, Matching)
        return await client.partitions(SubscribedTopicNames(tuple(topics)), skip_missing=matching)


def plan_batch(
    windows: Iterable[OffsetRange],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    options: SourceOptions,
    record_bytes: Mapping[str, int],
) -> list[list[OffsetRange]]:
    """Divide the windows (ranges of offsets) among tasks, and return the windows of each task.

    The tasks have similar numbers of records between the `bounds` of each partition. Partitions
    without records get no task of their own, because a task costs a few milliseconds.
    """
    windows = list(windows)
    ranges = {window: offsets for window in windows for offsets in cut([window], bounds)}
    whole = {_partition(window): (window, offsets) for window, offsets in ranges.items()}
    tasks = [
        [_widen(part, *whole[_partition(part)]) for part in parts]
        for parts in plan_tasks(ranges.values(), options, record_bytes)
    ]
    empty = [window for window in windows if window not in ranges]
    if not tasks:
        return [[window] for window in empty]
    for number, window in enumerate(empty):
        tasks[number % len(tasks)].append(window)
    return tasks


def _widen(part: OffsetRange, window: OffsetRange, offsets: OffsetRange) -> OffsetRange:
    """Return `part`, a part of the range `offsets`, extended to the limits of `window`.

    `offsets` is the range of existing records in the window. Only the first part is extended to the
    start of the window, and only the last part to its end.
    """
    start = window.start if part.start == offsets.start else part.start
    end = window.end if part.end == offsets.end else part.end
    return part._replace(start=start, end=end)


async def resolve_bounds(
    client: Client, options: SourceOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the starting and ending offset of each partition, which are looked up now.

    `options` are those of the query. Raise ConfigError if a start is after the end.
    """
    starts = await resolve(client, restrict(options.starting, partitions), partitions)
    ends = await resolve(client, restrict(options.ending, partitions), partitions)
    for tp in sorted(starts):
        if starts[tp] > ends[tp]:
            raise ConfigError(
                f"The starting offset {starts[tp]} of {tp} is after its ending offset {ends[tp]}. "
                "Set an earlier start or a later end."
            )
    return {tp: (starts[tp], ends[tp]) for tp in starts}


def cut(
    windows: Iterable[OffsetRange], bounds: Mapping[TopicPartition, tuple[int, int]]
) -> list[OffsetRange]:
    """Return the parts of the windows that are within the partition's (start, end) in `bounds`.

    Empty parts are left out.
    """
    parts = []
    for window in windows:
        start, end = bounds[_partition(window)]
        part = window._replace(start=max(window.start, start), end=min(window.end, end))
        if part.start < part.end:
            parts.append(part)
    return parts


def planned_ids(options: SourceOptions, topic_ids: Mapping[str, UUID]) -> Mapping[str, UUID]:
    """Return the topic ids that a task compares with the current ones, to detect re-created topics.

    Return no ids if no option gives an offset, because earliest, latest and timestamps also apply
    to a re-created topic.
    """
    limits = (options.starting, options.ending)
    return topic_ids if any(isinstance(bound, OffsetBound) for bound in limits) else {}


def _partition(offsets: OffsetRange) -> TopicPartition:
    return TopicPartition(offsets.topic, offsets.partition)
