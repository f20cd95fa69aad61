"""The reader of batch queries. Offsets are resolved once, when the query is planned."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.spark.source.client import Client
from asyncconsumer.spark.source.pushdown import PushedFilters
from asyncconsumer.spark.source.quickack import acknowledge_at_once
from asyncconsumer.spark.source.resolve import resolve
from asyncconsumer.spark.source.task_planning import ranges_to_sample, tasks_of
from asyncconsumer.spark.source.task_reader import read
from asyncconsumer.spark.source.worker_loop import home
from asyncconsumer.spark.source.worker_process import settle
from asyncconsumer.spark.values.factory import batches_of
from asyncconsumer.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Task(InputPartition):
    """The ranges of one task, and the topic ids, which reveal a topic re-created meanwhile."""

    def __init__(self, ranges: Sequence[OffsetRange], topic_ids: Mapping[str, UUID]) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        topics = {one.topic for one in ranges}
        self.topic_ids = {name: each for name, each in topic_ids.items() if name in topics}


def read_task(
    task: InputPartition, options: SourceOptions, schema: "StructType"
) -> Iterator["pa.RecordBatch"]:
    """Read a task, on an executor. Spark makes another kind of task for a plan without ranges."""
    if not isinstance(task, Task):
        return
    here = home()
    client = here.client(options.kafka)
    batches = batches_of(options, schema)
    settle()
    found = read(
        client,
        task.ranges,
        batches,
        fail_on_data_loss=options.fail_on_data_loss,
        topic_ids=task.topic_ids,
    )
    yield from here.iterate(found)


class UnpickleHook:
    """A mixin that speeds up the transfer of the rest of a task when a reader is unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()


class KafkaReader(UnpickleHook, DataSourceReader):
    """A reader that plans and reads a batch query."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._narrowed = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the query."""
        here = home()
        client = here.client(self._options.kafka)
        ranges = here.run(_planned(client, self._options, self._narrowed))
        sizes = here.run(client.record_bytes(ranges_to_sample(ranges, self._options)))
        ids = client.topic_ids({one.topic for one in ranges})
        return [Task(each, ids) for each in tasks_of(ranges, self._options, sizes)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Read the ranges of one task."""
        return read_task(partition, self._options, self._schema)


class FilteringReader(KafkaReader):
    """A reader with filter pushdown. Without that setting, Spark rejects a `pushFilters` method."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Apply the supported filters. Return the others, which Spark applies."""
        return list(self._narrowed.take(filters))


async def _planned(
    client: Client, options: SourceOptions, narrowed: PushedFilters
) -> list[OffsetRange]:
    partitions = await client.partitions(options.selection)
    starts = await resolve(client, options.starting, partitions)
    ends = await resolve(client, options.ending, partitions)
    for one in sorted(starts):
        if starts[one] > ends[one]:
            raise ConfigError(
                f"{one}: the starting offset {starts[one]} is behind the ending offset {ends[one]}"
            )
    ranges = narrowed.of(OffsetRange(*one, starts[one], ends[one]) for one in sorted(starts))
    if narrowed.since_ms is None:
        return ranges
    places = [TopicPartition(one.topic, one.partition) for one in ranges]
    since = await client.list_offsets(dict.fromkeys(places, narrowed.since_ms))
    return [
        one._replace(start=max(one.start, since[at]))
        for one, at in zip(ranges, places, strict=True)
        if 0 <= since[at] < one.end  # -1: no record is as new
    ]
