"""Avro values, each as its schema's plain encoding: what Spark's `from_avro` reads."""

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

_DAMAGED: Final = (
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
"""What fastavro makes of each type, and of what is meant by it."""


class AvroDecoder:
    """Reads with fastavro, record by record, and has Arrow make the columns.

    Fields of the record that the schema of the query does not have are left out.
    """

    def __init__(self, kind: "pa.DataType", avro_schema: str | None) -> None:
        self._kind = kind
        written = _written(avro_schema, [field.name for field in kind])
        _check_types(written, kind)
        read = package("fastavro", "Avro").schemaless_reader
        self._read: Callable[[io.BytesIO], Any] = lambda data: read(data, written, None)

    def mended(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """As they are: to try one value costs no more than to look at it."""
        return values, {}

    def decode(self, values: Any) -> Any:  # noqa: ANN401 - pyarrow's
        """A column of structs."""
        found = []
        for value in values.to_pylist():
            data = io.BytesIO(value)
            try:
                found.append(self._read(data))
            except _DAMAGED as error:
                raise Undecodable(f"{type(error).__name__}: {error}") from None
            if data.tell() != len(value):
                raise Undecodable(f"{len(value) - data.tell()} bytes are left behind it")
        try:
            return pa.array(found, self._kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise Undecodable(str(error)) from None


def _written(avro_schema: str | None, names: list[str]) -> "Mapping[str, Any]":
    if not avro_schema:
        raise ConfigError("valueFormat avro needs valueSchema: the schema of the values as JSON")
    written = parsed(avro_schema, "valueSchema")
    fields = written.get("fields") if isinstance(written, dict) else None
    if fields is None:
        raise ConfigError("valueSchema must be a record: its fields become columns")
    if lacking := [name for name in names if name not in {field["name"] for field in fields}]:
        raise ConfigError(f"valueSchema has no field {', '.join(lacking)}, but the query has")
    found: Mapping[str, Any] = parsed(_with_texts(json.loads(avro_schema)), "valueSchema")
    return found


def _with_texts(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """The same with texts for UUIDs, as Spark has them: fastavro would make objects of them."""
    if isinstance(schema, list):
        return [_with_texts(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: one for name, one in schema.items() if (name, one) != ("logicalType", "uuid")}
    return {name: _with_texts(one) for name, one in kept.items()}


def _check_types(written: "Mapping[str, Any]", kind: "pa.DataType") -> None:
    """Raise for a type that is not what the values have: each of them would count as bad."""
    example = _example(written, written["__named_schemas"])
    for field in kind:
        try:
            pa.array([example[field.name]], field.type)
        except (pa.ArrowException, TypeError) as error:
            raise ConfigError(
                f"value.{field.name} cannot be {field.type}, for that is not what {field.name} of "
                f"valueSchema becomes: {error}"
            ) from None


def _example(schema: Any, names: "Mapping[str, Any]") -> Any:  # noqa: ANN401 - JSON, a value
    """One of its values, as fastavro makes them; None where they may be of several kinds."""
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        return _example(kinds[0], names) if len(kinds) == 1 else None
    if isinstance(schema, str):
        return _example(names[schema], names) if schema in names else _EXAMPLES.get(schema)
    match schema["type"]:
        case "record":  # one that is within itself ends there
            others = {name: one for name, one in names.items() if name != schema["name"]}
            return {one["name"]: _example(one["type"], others) for one in schema["fields"]}
        case "array":
            return [_example(schema["items"], names)]
        case "map":
            return {"": _example(schema["values"], names)}
        case kind:
            meant = f"{kind} {schema.get('logicalType')}"
            return _EXAMPLES.get(meant, _EXAMPLES.get(kind))
