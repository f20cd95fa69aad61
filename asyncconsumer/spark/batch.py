"""Batch queries: offsets are resolved once, when the query is planned."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from asyncconsumer.errors import ConfigError
from asyncconsumer.ranges import OffsetRange
from asyncconsumer.spark.client import Client
from asyncconsumer.spark.home import home
from asyncconsumer.spark.options import SourceOptions
from asyncconsumer.spark.reader import read
from asyncconsumer.spark.resolve import resolve
from asyncconsumer.spark.tasks import tasks_of
from asyncconsumer.spark.values import batches_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def read_task(
    task: InputPartition, options: SourceOptions, schema: "StructType"
) -> Iterator["pa.RecordBatch"]:
    """Runs on an executor. A task of no ranges is what Spark makes of a plan without any."""
    if not isinstance(task, Task):
        return
    here = home()
    client = here.client(options.kafka)
    batches = batches_of(options, schema)
    found = read(client, task.ranges, batches, fail_on_data_loss=options.fail_on_data_loss)
    yield from here.iterate(found)


class KafkaReader(DataSourceReader):
    """Plans and reads a batch query."""

    def __init__(self, options: SourceOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Where everything begins and ends, as tasks."""
        here = home()
        ranges = here.run(_planned(here.client(self._options.kafka), self._options))
        return [Task(ranges) for ranges in tasks_of(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Read one task's ranges."""
        return read_task(partition, self._options, self._schema)


async def _planned(client: Client, options: SourceOptions) -> list[OffsetRange]:
    partitions = await client.partitions(options.selection)
    starts = await resolve(client, options.starting, partitions)
    ends = await resolve(client, options.ending, partitions)
    for one in sorted(starts):
        if starts[one] > ends[one]:
            raise ConfigError(
                f"{one}: the starting offset {starts[one]} is behind the ending offset {ends[one]}"
            )
    return [OffsetRange(*one, starts[one], ends[one]) for one in sorted(starts)]
