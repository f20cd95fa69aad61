"""A Spark task with fixed offset ranges, and how an executor reads it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from asyncconsumer.spark.options.source import SourceOptions
from asyncconsumer.spark.source.task_reader import read
from asyncconsumer.spark.source.worker_loop import worker_loop
from asyncconsumer.spark.source.worker_process import enable_quickack, freeze_imports
from asyncconsumer.spark.values.factory import make_batches
from asyncconsumer.types import OffsetRange

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
    """Read the records of a task on an executor. Yield them as Arrow batches."""
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
    """A mixin for readers that enables TCP_QUICKACK when a reader is unpickled.

    Spark unpickles the reader at the start of each task.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        enable_quickack()
