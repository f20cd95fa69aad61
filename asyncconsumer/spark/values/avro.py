"""A decoder of Avro values in plain binary encoding.

It returns the same values as Spark's `from_avro`.
"""

import io
import json
import struct
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from asyncconsumer.errors import ConfigError
from asyncconsumer.serdes.avro import parsed
from asyncconsumer.serdes.models import package
from asyncconsumer.spark.values.decoder import Undecodable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DECODE_ERRORS: Final = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    struct.error,
)
_MOMENT: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXAMPLES: Final = {
    "boolean": True,
    **dict.fromkeys(("int", "long"), 1),
    **dict.fromkeys(("float", "double"), 1.0),
    **dict.fromkeys(("string", "enum"), ""),
    **dict.fromkeys(("bytes", "fixed"), b""),
    **dict.fromkeys(("long timestamp-millis", "long timestamp-micros"), _MOMENT),
    **dict.fromkeys(
        ("long local-timestamp-millis", "long local-timestamp-micros"), _MOMENT.replace(tzinfo=None)
    ),
    **dict.fromkeys(("int time-millis", "long time-micros"), time()),
    **dict.fromkeys(("bytes decimal", "fixed decimal"), Decimal(0)),
    "int date": _MOMENT.date(),
}
"""An example of the Python value that fastavro returns for each type and logical type."""


class AvroDecoder:
    """A decoder that reads each value with fastavro and then converts the results to Arrow.

    Avro fields that are not in the schema of the query are left out.
    """

    def __init__(self, kind: "pa.DataType", avro_schema: str | None) -> None:
        self._kind = kind
        schema = _parse_schema(avro_schema, [field.name for field in kind])
        _check_types(schema, kind)
        read = package("fastavro", "Avro").schemaless_reader
        self._read: Callable[[io.BytesIO], Any] = lambda data: read(data, schema, None)

    def coerce(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """Return the values unchanged, because Avro values need no coercion."""
        return values, {}

    def decode(self, values: Any) -> Any:  # noqa: ANN401 - pyarrow's
        """Return the decoded values as an Arrow column of structs."""
        decoded = []
        for value in values.to_pylist():
            data = io.BytesIO(value)
            try:
                decoded.append(self._read(data))
            except _DECODE_ERRORS as error:
                raise Undecodable(f"{type(error).__name__}: {error}") from None
            if data.tell() != len(value):
                raise Undecodable(f"{len(value) - data.tell()} bytes follow the value")
        try:
            return pa.array(decoded, self._kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise Undecodable(str(error)) from None


def _parse_schema(avro_schema: str | None, names: list[str]) -> "Mapping[str, Any]":
    if not avro_schema:
        raise ConfigError("`valueFormat` avro needs `valueSchema`, the Avro schema as JSON.")
    schema = parsed(avro_schema, "valueSchema")
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if fields is None:
        raise ConfigError("`valueSchema` must be a record, because its fields become columns.")
    if missing := [name for name in names if name not in {field["name"] for field in fields}]:
        raise ConfigError(
            f"The schema of the query has fields that `valueSchema` does not have: "
            f"{', '.join(missing)}. Remove them, or change `valueSchema`."
        )
    converted: Mapping[str, Any] = parsed(_without_uuids(json.loads(avro_schema)), "valueSchema")
    return converted


def _without_uuids(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return an Avro schema in which each UUID is a plain string, as Spark reads it.

    fastavro would otherwise return UUID objects.
    """
    if isinstance(schema, list):
        return [_without_uuids(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_uuids(inner)
        for name, inner in schema.items()
        if (name, inner) != ("logicalType", "uuid")
    }


def _check_types(schema: "Mapping[str, Any]", kind: "pa.DataType") -> None:
    """Raise ConfigError if a field of `kind`, the query's struct, does not fit the schema."""
    example = _example(schema, schema["__named_schemas"])
    for field in kind:
        try:
            pa.array([example[field.name]], field.type)
        except (pa.ArrowException, TypeError) as error:
            raise ConfigError(
                f"The column value.{field.name} has the type {field.type}, which does not fit "
                f"`valueSchema`: {error}. Declare another type in the schema, or change "
                "`valueSchema`."
            ) from None


def _example(schema: Any, names: "Mapping[str, Any]") -> Any:  # noqa: ANN401 - JSON, a value
    """Return an example value of an Avro schema, or None for a union of several types.

    `names` maps the named types to their schemas.
    """
    if isinstance(schema, list):
        kinds = [inner for inner in schema if inner != "null"]
        return _example(kinds[0], names) if len(kinds) == 1 else None
    if isinstance(schema, str):
        return _example(names[schema], names) if schema in names else _EXAMPLES.get(schema)
    match schema["type"]:
        case "record":  # without its own name, so that recursion ends
            others = {name: inner for name, inner in names.items() if name != schema["name"]}
            return {field["name"]: _example(field["type"], others) for field in schema["fields"]}
        case "array":
            return [_example(schema["items"], names)]
        case "map":
            return {"": _example(schema["values"], names)}
        case kind:
            logical = f"{kind} {schema.get('logicalType')}"
            return _EXAMPLES.get(logical, _EXAMPLES.get(kind))
