"""The reader of batch queries. It resolves the query's offsets once, when Spark plans the query."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.spark.source.client import Client
from asyncconsumer.spark.source.pushdown import PushedFilters
from asyncconsumer.spark.source.resolve import resolve
from asyncconsumer.spark.source.task_planning import plan_tasks, ranges_to_sample
from asyncconsumer.spark.source.task_reader import read
from asyncconsumer.spark.source.worker_loop import worker_loop
from asyncconsumer.spark.source.worker_process import enable_quickack, freeze_imports
from asyncconsumer.spark.values.factory import make_batches
from asyncconsumer.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Task(InputPartition):
    """The offset ranges that one Spark task reads, and the ids of their topics.

    With the ids the task detects a topic that was re-created after planning.
    """

    def __init__(self, ranges: Sequence[OffsetRange], topic_ids: Mapping[str, UUID]) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        topics = {offsets.topic for offsets in ranges}
        self.topic_ids = {name: id_ for name, id_ in topic_ids.items() if name in topics}


def read_task(
    task: InputPartition, options: SourceOptions, schema: "StructType"
) -> Iterator["pa.RecordBatch"]:
    """Read the records of a planned task on an executor. Yield them as Arrow batches."""
    if not isinstance(task, Task):
        return  # Spark adds a task of its own to a plan without tasks
    loop = worker_loop()
    client = loop.client(options.kafka)
    batches = make_batches(options, schema)
    freeze_imports()
    rows = read(
        client,
        task.ranges,
        batches,
        fail_on_data_loss=options.fail_on_data_loss,
        topic_ids=task.topic_ids,
    )
    yield from loop.iterate(rows)


class UnpickleHook:
    """A mixin for readers that enables TCP_QUICKACK when it is unpickled.

    Spark unpickles the reader at the start of each task.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        enable_quickack()


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
        ranges = loop.run(_plan(client, self._options, self._filters))
        sizes = loop.run(client.record_bytes(ranges_to_sample(ranges, self._options)))
        ids = client.topic_ids({offsets.topic for offsets in ranges})
        return [Task(task, ids) for task in plan_tasks(ranges, self._options, sizes)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Read the offset ranges of one task. Yield their records as Arrow batches."""
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


async def _plan(
    client: Client, options: SourceOptions, filters: PushedFilters
) -> list[OffsetRange]:
    partitions = await client.partitions(options.selection)
    starts = await resolve(client, options.starting, partitions)
    ends = await resolve(client, options.ending, partitions)
    for tp in sorted(starts):
        if starts[tp] > ends[tp]:
            raise ConfigError(
                f"The starting offset {starts[tp]} of {tp} is after its ending offset {ends[tp]}."
            )
    ranges = filters.apply(OffsetRange(*tp, starts[tp], ends[tp]) for tp in sorted(starts))
    if filters.since_ms is None:
        return ranges
    tps = [TopicPartition(offsets.topic, offsets.partition) for offsets in ranges]
    since = await client.list_offsets(dict.fromkeys(tps, filters.since_ms))
    return [
        offsets._replace(start=max(offsets.start, since[tp]))
        for offsets, tp in zip(ranges, tps, strict=True)
        if 0 <= since[tp] < offsets.end  # -1 if no record is as new
    ]
