"""The data source itself: `spark.dataSource.register(KafkaSource)`, `format("asyncconsumer")`."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from asyncconsumer.spark.columns import check_columns, ddl
from asyncconsumer.spark.options import parse

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class KafkaSource(DataSource):
    """Kafka for Spark, batch and streaming, with the options of Spark's own source and no jar.

    A narrower schema than Kafka's is read for less: `.schema("value binary, offset bigint")`.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` is told."""
        return "asyncconsumer"

    def schema(self) -> str:
        """The columns of Spark's own source."""
        return ddl(headers=self.options.get("includeHeaders", "").strip().lower() == "true")

    def reader(self, schema: "StructType") -> DataSourceReader:
        """For `spark.read`."""
        from asyncconsumer.spark.batch import KafkaReader

        check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields])
        return KafkaReader(parse(self.options, streaming=False), schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        from asyncconsumer.spark.stream import KafkaStreamReader

        check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields])
        return KafkaStreamReader(parse(self.options, streaming=True), schema)
