"""The choice of a value decoder by the options. A decoder module is imported only if it is used."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.values.arrow_types import arrow_schema, arrow_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from asyncconsumer.spark.options.source import SourceOptions
    from asyncconsumer.spark.source.task_reader import ArrowBatches
    from asyncconsumer.spark.values.decoder import Decoder

CORRUPT: Final = "_corrupt_record"
"""The column for values that cannot be decoded. Spark's own readers use the same name."""
_NULLABLE: Final = ("key", "value", "headers", CORRUPT)


def check_typed(declared: Sequence[tuple[str, str]], value_format: str) -> None:
    """Raise ConfigError unless the schema declares a struct for the value."""
    kinds = dict(declared)
    if not kinds.get("value", "").startswith("struct<"):
        raise ConfigError(
            f"`valueFormat` {value_format} needs a schema with a struct for the value, such as "
            '.schema("value struct<id: bigint, name: string>, offset bigint").'
        )
    if kinds.get(CORRUPT, "string") != "string":
        raise ConfigError(f"The type of column {CORRUPT} is string, not {kinds[CORRUPT]}.")


def check_nulls(schema: "StructType", value_format: str | None) -> None:
    """Raise ConfigError if a column that may have nulls is declared NOT NULL.

    Otherwise the query would fail at the first null.
    """
    for field, nullable in zip(schema.fields, schema.toNullable().fields, strict=True):
        is_json = field.name == "value" and value_format == "json"
        is_strict = not field.nullable or (is_json and field.dataType != nullable.dataType)
        if field.name in _NULLABLE and is_strict:
            raise ConfigError(
                f"Column {field.name} may contain nulls. Remove NOT NULL from its schema, for "
                "example with schema.toNullable()."
            )


def make_decoder(options: "SourceOptions", schema: "StructType") -> "Decoder":
    """Return the decoder of values for the `valueFormat` option."""
    kind = arrow_type(schema["value"].dataType)
    if options.value_format == "json":
        from asyncconsumer.spark.values.json import JsonDecoder

        return JsonDecoder(kind)
    if options.protobuf is not None:
        from asyncconsumer.spark.values.protobuf import ProtobufDecoder

        return ProtobufDecoder(kind, options.protobuf)
    from asyncconsumer.spark.values.avro import AvroDecoder

    return AvroDecoder(kind, options.value_schema)


def make_batches(options: "SourceOptions", schema: "StructType") -> "ArrowBatches":
    """Return the converter of records to Arrow batches for a query's options and schema."""
    from asyncconsumer.spark.values.columns import Columns

    arrow = arrow_schema(schema)
    if options.value_format is None:
        return Columns(arrow)
    from asyncconsumer.spark.values.decoder import TypedColumns

    return TypedColumns(arrow, make_decoder(options, schema), options.value_format, options.mode)
