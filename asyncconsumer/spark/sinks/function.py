"""A sink that is a function of the user's own: of a Spark DataFrame, or of an Arrow table."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.types import TopicPartition

Write = Callable[[Any, FeedBatch], Any]
"""Writes a batch, durably when it returns. A coroutine, or a function that runs in a thread."""


class WriteSink:
    """Keeps no offsets itself, so batches are of one partition, and the same if they come again."""

    remembers: Final = False
    apart: Final = True

    def __init__(self, write: Write, spark: object = None) -> None:
        self._write = write
        self._spark: Any = spark

    def __str__(self) -> str:
        return f"{getattr(self._write, '__qualname__', self._write)}()"

    def open(self) -> None:
        """Have Spark load what it loads with the first data, before anybody waits for that."""
        if self._spark is not None:
            self._spark.createDataFrame(pa.table({"nothing": pa.array([0])}))

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """It knows nothing."""
        return dict.fromkeys(partitions)

    def prepare(self, batch: FeedBatch) -> Any:  # noqa: ANN401 - a table, or a DataFrame
        """What is written: without pandas, and without an object per record."""
        return batch.table if self._spark is None else self._spark.createDataFrame(batch.table)

    def publish(self, batch: FeedBatch, prepared: Any) -> Any:  # noqa: ANN401
        """Have it written."""
        if inspect.iscoroutinefunction(self._write):
            return self._written(self._write(prepared, batch))
        done = self._write(prepared, batch)
        return self._written(done) if inspect.isawaitable(done) else ()

    async def _written(self, writing: Any) -> tuple[()]:  # noqa: ANN401
        await writing
        return ()

    def discard(self, prepared: Any) -> None:  # noqa: ANN401
        """Nothing to do."""
