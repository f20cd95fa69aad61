"""The Spark data source `KafkaSource`. Its format name is "asyncconsumer"."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.sink import parse_sink
from asyncconsumer.spark.options.source import SourceOptions, check, parse, parse_protobuf
from asyncconsumer.spark.source.source_pickle import reduce_source
from asyncconsumer.spark.source.worker_process import freeze_imports
from asyncconsumer.spark.values.columns import check_columns, ddl
from asyncconsumer.spark.values.factory import CORRUPT, check_nulls, check_typed, make_decoder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class KafkaSource(DataSource):
    """A Kafka source and sink for batch and streaming queries, with the options of Spark's own.

    A schema with fewer columns is faster to read: `.schema("value binary, offset bigint")`. With
    `valueFormat` the value is decoded to the struct that the schema declares. For Protobuf the
    struct need not be declared, because the descriptors define it. A JSON `timestamp` without a
    zone is read as UTC, because Spark does not pass the session's zone to a source. Declare
    `timestamp_ntz` to apply a zone later.

    Spark plans a Python source once for each `load()`, and uses that plan for all queries on it.
    So tasks look up their offsets when they run. Records that arrive while a query runs may be in
    its result or not. For a fixed end, set `endingOffsets` or `endingTimestamp`. Pushed filters
    would limit the plan for all queries. They are used only with the option `pushFilters`, for a
    `load()` with a single query.

    Each partition is read by a task of its own. With `recordsPerTask` one task reads small ranges
    of several partitions, up to this number of records. This makes micro-batches faster, unless a
    slow step follows without a shuffle.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        freeze_imports()

    def __reduce__(self) -> tuple[Callable[..., object], object]:
        return reduce_source(type(self), self.options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the source for Spark's `format` method."""
        return "asyncconsumer"

    def schema(self) -> str:
        """Return the default schema: the columns of Spark's own source.

        For Protobuf the value column is the struct that `from_protobuf` returns.

        Spark calls this at `load()`, so wrong options are reported there. If the user declares a
        schema, Spark first calls the source when the query is planned.
        """
        check(self.options)
        headers = self.options.get("includeHeaders", "").strip().lower() == "true"
        protobuf = parse_protobuf(self.options)
        if protobuf is None:
            return ddl(headers=headers)
        from asyncconsumer.spark.values.protobuf_schema import struct_ddl

        return ddl(headers=headers, value=struct_ddl(protobuf))

    def reader(self, schema: "StructType") -> DataSourceReader:
        """Return the reader for `spark.read`."""
        from asyncconsumer.spark.source import batch_reader, pushdown

        options = self._checked(schema, streaming=False)
        if options.push_filters and pushdown.is_on():
            return batch_reader.FilteringReader(options, schema)
        return batch_reader.KafkaReader(options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802
        """Return the reader for `spark.readStream`."""
        from asyncconsumer.spark.source import offset_json
        from asyncconsumer.spark.source.spark_api import LIMITS_BATCHES

        offset_json.install()
        options = self._checked(schema, streaming=True)
        if not LIMITS_BATCHES:
            from asyncconsumer.spark.source import earlier_streams

            earlier_streams.refuse_limits(options)
            return earlier_streams.EarlierStreamReader(options, schema)
        from asyncconsumer.spark.source.stream_reader import KafkaStreamReader

        return KafkaStreamReader(options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return the writer for `df.write`.

        Raise ConfigError if `overwrite` is set, because records can only be appended to a topic.
        """
        from asyncconsumer.spark.writer.writers import KafkaWriter

        if overwrite:
            raise ConfigError(
                'Save mode Overwrite not allowed for Kafka. Set mode("append") to write records.'
            )
        return KafkaWriter(parse_sink(self.options), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: "StructType",
        overwrite: bool,  # noqa: FBT001 - in complete mode, each result is appended
    ) -> DataSourceStreamWriter:
        """Return the writer for `df.writeStream`."""
        from asyncconsumer.spark.writer.writers import KafkaStreamWriter

        return KafkaStreamWriter(parse_sink(self.options), schema)

    def _checked(self, schema: "StructType", *, streaming: bool) -> SourceOptions:
        options = parse(self.options, streaming=streaming)
        declared = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        if options.value_format is not None:
            check_typed(declared, options.value_format)
            make_decoder(options, schema)
            declared = [column for column in declared if column[0] not in ("value", CORRUPT)]
        check_columns(declared)
        check_nulls(schema, options.value_format)
        freeze_imports()  # after the modules of readers are imported
        return options
