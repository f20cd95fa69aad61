"""A sink that calls a function of the user with a Spark DataFrame or an Arrow table."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.types import TopicPartition

WriteBatch = Callable[[Any, FeedBatch], Any]
"""A function that writes a batch durably before it returns. Plain functions run in a thread."""


class WriteSink:
    """A sink that calls a function and stores no offsets.

    Each batch is of one partition. A repeated batch has the same records.
    """

    remembers: Final = False
    apart: Final = True

    def __init__(self, write: WriteBatch, spark: object = None) -> None:
        self._write = write
        self._spark: Any = spark

    def __str__(self) -> str:
        return f"{getattr(self._write, '__qualname__', self._write)}()"

    def open(self) -> None:
        """Create a small DataFrame, because the first one is slow: Spark loads modules for it."""
        if self._spark is not None:
            self._spark.createDataFrame(pa.table({"nothing": pa.array([0])}))

    def load(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return None for each partition, because the sink stores no offsets."""
        return dict.fromkeys(partitions)

    def prepare(self, batch: FeedBatch) -> Any:  # noqa: ANN401 - a table, or a DataFrame
        """Return the argument of the function: an Arrow table, or a Spark DataFrame.

        The DataFrame is made without pandas.
        """
        return batch.table if self._spark is None else self._spark.createDataFrame(batch.table)

    def publish(self, batch: FeedBatch, prepared: Any) -> Any:  # noqa: ANN401
        """Call the function, and await its result if that is awaitable. No partition is refused."""
        if inspect.iscoroutinefunction(self._write):
            return self._written(self._write(prepared, batch))
        done = self._write(prepared, batch)
        return self._written(done) if inspect.isawaitable(done) else ()

    async def _written(self, writing: Any) -> tuple[()]:  # noqa: ANN401
        await writing
        return ()

    def discard(self, prepared: Any) -> None:  # noqa: ANN401
        """Do nothing, because `prepare` has written nothing."""
