"""The data source itself: `spark.dataSource.register(KafkaSource)`, `format("asyncconsumer")`."""

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.options.source import SourceOptions, check, parse, protobuf_of
from asyncconsumer.spark.source.worker_process import settle
from asyncconsumer.spark.values.columns import check_columns, ddl
from asyncconsumer.spark.values.factory import CORRUPT, check_nulls, check_typed, decoder_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class KafkaSource(DataSource):
    """Kafka for Spark, batch and streaming, with the options of Spark's own source and no jar.

    A narrower schema than Kafka's is read for less: `.schema("value binary, offset bigint")`. With
    `valueFormat` the value is a struct that the schema declares, decoded on the way; of Protobuf it
    need not be declared, for the descriptors tell it. A `timestamp` in JSON that names no zone is
    of UTC, for a source is not told of the session's zone: declare `timestamp_ntz` to give it one.

    Spark plans a Python source once a `load()`, and keeps that plan for all that is made of it: to
    see what was written meanwhile, load again. Filters that it hands down would narrow the plan for
    all of it, too: they are taken only with `pushFilters`, for a `load()` with one query.

    Small ranges of several partitions share a task, which makes micro-batches quick. Where a slow
    step follows without a shuffle, `recordsPerTask` 1 gives each partition a task of its own.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        settle()

    @classmethod
    def name(cls) -> str:
        """What `format` is told."""
        return "asyncconsumer"

    def schema(self) -> str:
        """The columns of Spark's own source; of Protobuf, the value as `from_protobuf` has it.

        Spark asks at `load()`, so wrong options are reported there. Where a schema is declared,
        Spark first calls the source when the query is planned.
        """
        check(self.options)
        headers = self.options.get("includeHeaders", "").strip().lower() == "true"
        protobuf = protobuf_of(self.options)
        if protobuf is None:
            return ddl(headers=headers)
        from asyncconsumer.spark.values.protobuf_schema import struct_of

        return ddl(headers=headers, value=struct_of(protobuf))

    def reader(self, schema: "StructType") -> DataSourceReader:
        """For `spark.read`."""
        from asyncconsumer.spark.source import batch_reader, pushdown

        options = self._checked(schema, streaming=False)
        takes_filters = options.push_filters and pushdown.is_on()
        return (batch_reader.FilteringReader if takes_filters else batch_reader.KafkaReader)(
            options, schema
        )

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        from asyncconsumer.spark.source.stream_reader import KafkaStreamReader

        return KafkaStreamReader(self._checked(schema, streaming=True), schema)

    def writer(self, *_: object, **__: object) -> NoReturn:
        """For `df.write`, which is not for us; nor is `df.writeStream`."""
        raise ConfigError('asyncconsumer reads from Kafka; to write to it, keep format("kafka")')

    streamWriter = writer  # noqa: N815 - Spark's name

    def _checked(self, schema: "StructType", *, streaming: bool) -> SourceOptions:
        options = parse(self.options, streaming=streaming)
        declared = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        if options.value_format is not None:
            check_typed(declared, options.value_format)
            decoder_of(options, schema)
            declared = [one for one in declared if one[0] not in ("value", CORRUPT)]
        check_columns(declared)
        check_nulls(schema, options.value_format)
        settle()  # of what reads, too
        return options
