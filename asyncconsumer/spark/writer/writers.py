"""The writers of batch and streaming queries. Each task writes its rows to Kafka at least once."""

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from asyncconsumer.spark.options.sink import SinkOptions
from asyncconsumer.spark.values.arrow_types import arrow_type
from asyncconsumer.spark.writer.columns import RecordColumns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

_MAX_ROWS: Final = 10_000  # of a batch that is made of rows
_HAS_ARROW_STREAMS: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
_StreamWriter: Any = (
    datasource.DataSourceStreamArrowWriter if _HAS_ARROW_STREAMS else DataSourceStreamWriter
)


class _BaseWriter:
    def __init__(self, options: SinkOptions, schema: "StructType") -> None:
        declared = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        self.columns = RecordColumns(declared, options.topic)
        self._options = options
        self._schema = schema

    def _write(self, batches: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        # imported here, because the driver does not need it
        from asyncconsumer.spark.writer.worker_producer import write_batches

        write_batches(batches, self.columns, self._options)
        return WriterCommitMessage()


class KafkaWriter(_BaseWriter, DataSourceArrowWriter):
    """The writer of `df.write`.

    There is nothing to commit, because written records are visible at once. If a task fails, Spark
    repeats it, and its records may be written twice.
    """

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Write the rows of one task. Return when all in-sync replicas have them."""
        return self._write(iterator)


class KafkaStreamWriter(_BaseWriter, _StreamWriter):
    """The writer of `df.writeStream`.

    If a micro-batch fails, Spark repeats it, and its records may be written twice.
    """

    def write(self, iterator: "Iterator[pa.RecordBatch] | Iterator[Row]") -> WriterCommitMessage:
        """Write the rows of one task. Return when all in-sync replicas have them."""
        batches: Any = iterator
        if not _HAS_ARROW_STREAMS:  # before Spark 4.1
            batches = batches_of(batches, self.columns, self._schema)
        return self._write(batches)


def batches_of(
    rows: "Iterator[Row | tuple[Any, ...]]", columns: RecordColumns, schema: "StructType"
) -> "Iterator[pa.RecordBatch]":
    """Yield rows as Arrow batches. Columns that are not written are null."""
    import pyarrow as pa

    while chunk := list(islice(rows, _MAX_ROWS)):
        arrays = [pa.nulls(len(chunk))] * len(schema)
        for name, position in columns.positions.items():
            values = [row[position] for row in chunk]
            if name == "headers":  # Arrow would take a Row for a list of pairs
                values = [pairs and [pair and pair.asDict() for pair in pairs] for pairs in values]
            arrays[position] = pa.array(values, arrow_type(schema[position].dataType))
        yield pa.record_batch(arrays, names=schema.names)
