"""The conversion of rows to records, without a Spark or a broker."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, StructType

from asyncconsumer.errors import UnwritableRow
from asyncconsumer.spark.options.sink import parse_sink
from asyncconsumer.spark.writer.columns import RecordColumns, bytes_of
from asyncconsumer.spark.writer.writers import KafkaStreamWriter, batches_of

pytestmark = pytest.mark.fast

HEADERS = "array<struct<key:string,value:binary>>"


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_string_and_binary_columns_become_bytes(kind: pa.DataType) -> None:
    column = pa.array(["a", None, "", "ü"]).cast(kind)
    assert bytes_of(column) == [b"a", None, b"", "ü".encode()]
    assert bytes_of(column.slice(3)) == ["ü".encode()]


def test_a_header_needs_a_key() -> None:
    columns = RecordColumns([("value", "string"), ("headers", HEADERS)], "t")
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    for headers in ([None], [{"key": None, "value": b"1"}]):
        batch = pa.record_batch({"value": ["v"], "headers": pa.array([headers], kind)})
        with pytest.raises(UnwritableRow, match="A header or its key is null"):
            list(columns.records(batch))


def test_rows_of_earlier_spark_versions_become_records() -> None:
    """Check rows with Row objects in the headers, as before Spark 4.1."""
    pair = StructType().add("key", "string").add("value", "binary")
    schema = StructType().add("at", "timestamp").add("value", "string")
    schema = schema.add("headers", ArrayType(pair)).add("key", "binary")
    writer = KafkaStreamWriter(parse_sink({"kafka.bootstrap.servers": "a:1", "topic": "t"}), schema)
    columns = writer.columns
    day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows: list[tuple[Any, ...]] = [
        (
            day,
            "v",
            [Row(key="h", value=bytearray(b"1")), Row(key="n", value=None)],
            bytearray(b"k"),
        ),
        (None, None, None, None),
    ] * 10_000
    batches = list(batches_of(iter(rows), columns, schema))
    assert [batch.num_rows for batch in batches] == [10_000, 10_000]
    assert list(columns.records(batches[0]))[:2] == [
        ("t", b"k", b"v", (("h", b"1"), ("n", None)), None),
        ("t", None, None, (), None),
    ]
