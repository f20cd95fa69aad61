"""The reader of batch queries."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.spark.source.batch_tasks import (
    BatchTask,
    Unplanned,
    cut,
    plan_batch,
    planned_ids,
    resolve_bounds,
)
from asyncconsumer.spark.source.client import Client
from asyncconsumer.spark.source.pushdown import PushedFilters
from asyncconsumer.spark.source.resolve import check_complete
from asyncconsumer.spark.source.spark_api import Filter
from asyncconsumer.spark.source.task import UnpickleHook, read_task
from asyncconsumer.spark.source.task_planning import ranges_to_sample
from asyncconsumer.spark.source.worker_loop import worker_loop
from asyncconsumer.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class KafkaReader(UnpickleHook, DataSourceReader):
    """The reader of a batch query."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._filters = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """Return the planned tasks of the query. Spark calls them partitions."""
        loop = worker_loop()
        client = loop.client(self._options.kafka)
        return list(loop.run(_plan(client, self._options, self._filters)))

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Look up the current offsets of one task, and yield its records as Arrow batches."""
        if isinstance(partition, BatchTask):
            loop = worker_loop()
            client = loop.client(self._options.kafka)
            partition = loop.run(partition.bind(client, self._options))
        return read_task(partition, self._options, self._schema)


class FilteringReader(KafkaReader):
    """A batch reader with filter pushdown.

    Spark rejects a reader with a `pushFilters` method unless filter pushdown is enabled.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Store the supported filters.

        Return the unsupported ones, which Spark then applies itself.
        """
        return list(self._filters.push(filters))


async def _plan(client: Client, options: SourceOptions, filters: PushedFilters) -> list[BatchTask]:
    partitions = await client.partitions(options.selection)
    check_complete(options.starting, partitions)
    check_complete(options.ending, partitions)
    bounds = await resolve_bounds(client, options, partitions)
    windows = filters.windows(partitions)
    if filters.since_ms is not None:
        windows = await _since(client, windows, filters.since_ms, bounds)
    ids = planned_ids(options, client.topic_ids({tp.topic for tp in partitions}))
    sizes = await client.record_bytes(ranges_to_sample(cut(windows, bounds), options))
    planned = plan_batch(windows, bounds, options, sizes) or [[]]
    unplanned = Unplanned(partitions, filters)
    return [
        BatchTask(task, ids, unplanned if number == 0 else None)
        for number, task in enumerate(planned)
    ]


async def _since(
    client: Client,
    windows: list[OffsetRange],
    since_ms: int,
    bounds: dict[TopicPartition, tuple[int, int]],
) -> list[OffsetRange]:
    """Return the windows (ranges of offsets) without the offsets before a time.

    Each window is cut to start at its partition's first record at or after `since_ms` (milliseconds
    since 1970). If there is no such record, the window starts at the partition's ending offset in
    `bounds`.
    """
    tps = [TopicPartition(window.topic, window.partition) for window in windows]
    since = await client.list_offsets(dict.fromkeys(tps, since_ms))
    return [
        window._replace(start=max(window.start, since[tp] if since[tp] >= 0 else bounds[tp][1]))
        for window, tp in zip(windows, tps, strict=True)
    ]
