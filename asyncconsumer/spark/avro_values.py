"""Avro values, each as its schema's plain encoding: what Spark's `from_avro` reads."""

import io
import json
import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from asyncconsumer.errors import ConfigError
from asyncconsumer.serdes.avro import parsed
from asyncconsumer.serdes.models import package
from asyncconsumer.spark.typed import Undecodable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DAMAGED: Final = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    struct.error,
)


class AvroDecoder:
    """Reads with fastavro, record by record, and has Arrow make the columns.

    Fields of the record that the schema of the query does not have are left out.
    """

    def __init__(self, kind: "pa.DataType", avro_schema: str | None) -> None:
        self._kind = kind
        self._read = _reader(avro_schema, [field.name for field in kind])

    def hopeless(self, _values: Any) -> "Sequence[int]":  # noqa: ANN401 - pyarrow's
        """None: to try one value costs no more than to look at it."""
        return ()

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


def _reader(avro_schema: str | None, names: list[str]) -> "Callable[[io.BytesIO], Any]":
    if not avro_schema:
        raise ConfigError("valueFormat avro needs valueSchema: the schema of the values as JSON")
    written = parsed(avro_schema, "valueSchema")
    fields = written.get("fields") if isinstance(written, dict) else None
    if fields is None:
        raise ConfigError("valueSchema must be a record: its fields become columns")
    if lacking := [name for name in names if name not in {field["name"] for field in fields}]:
        raise ConfigError(f"valueSchema has no field {', '.join(lacking)}, but the query has")
    read = package("fastavro", "Avro").schemaless_reader
    plain = parsed(_with_texts(json.loads(avro_schema)), "valueSchema")
    return lambda data: read(data, plain, None)


def _with_texts(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """The same with texts for UUIDs, as Spark has them: fastavro would make objects of them."""
    if isinstance(schema, list):
        return [_with_texts(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: one for name, one in schema.items() if (name, one) != ("logicalType", "uuid")}
    return {name: _with_texts(one) for name, one in kept.items()}
