"""Kafka's columns as Spark's own source has them, and Arrow batches of those that are wanted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from asyncconsumer.errors import ConfigError
from asyncconsumer.records.arrow import to_arrow

if TYPE_CHECKING:
    from asyncconsumer.records import decoding

HEADERS: Final = "headers"
TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
"""The columns, in their order, and their types in Spark's words."""

_OURS: Final = {"timestampType": "timestamp_type"}
_MOST_BYTES: Final = 64 * 2**20  # of one column in one batch


def ddl(*, headers: bool, value: str | None = None) -> str:
    """The whole schema, with another type for the value if there is one."""
    types = TYPES if value is None else {**TYPES, "value": value}
    types = {**types, "timestamp": "timestamp_ltz"}  # plain, it is what a setting says it is
    return ", ".join(f"{name} {kind}" for name, kind in types.items() if headers or name != HEADERS)


def check_columns(declared: Sequence[tuple[str, str]]) -> None:
    """Raise unless these are columns of ours, with their own types."""
    for name, kind in declared:
        if name not in TYPES:
            raise ConfigError(f"no column {name!r} in the schema: there are {', '.join(TYPES)}")
        if kind != TYPES[name]:
            raise ConfigError(f"column {name} is {TYPES[name]}, not {kind}; cast it after reading")


class Columns:
    """Makes batches of the columns wanted, in the order and with the types of `schema`."""

    def __init__(self, schema: "pa.Schema") -> None:
        self._schema = schema
        self._names = tuple(_OURS.get(name, name) for name in schema.names)

    def of(self, records: "decoding.Records") -> "pa.RecordBatch | None":
        """The next rows; None when there are no more."""
        batch = to_arrow(records, columns=self._names, timestamps="us", max_bytes=_MOST_BYTES)
        if batch is None:
            return None
        arrays = [
            _without_empty(column, field.type) if field.name == HEADERS else column
            for field, column in zip(self._schema, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _without_empty(headers: Any, kind: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """A record without headers has none in Spark, not an empty list."""
    from pyarrow import compute  # few ask for headers, and it takes a while

    empty = compute.equal(compute.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=kind, mask=empty)
