"""The columns of Spark's own Kafka source, and their conversion to Arrow batches."""

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from asyncconsumer.errors import ConfigError, MalformedTimestamp
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
"""The columns in order, with their Spark types."""

_DECODER_NAMES: Final = {"timestampType": "timestamp_type"}
_MAX_COLUMN_BYTES: Final = 64 * 2**20  # of one column in one batch
_TIMESTAMP: Final = "timestamp"
_TIMESTAMP_LIMITS: Final = tuple(struct.pack("<q", limit) for limit in (2**63 - 1, -(2**63)))
"""The decoder writes these for timestamps that do not fit. Neither is a multiple of 1,000."""


def ddl(*, headers: bool, value: str | None = None) -> str:
    """Return the columns of Spark's own source as a DDL schema.

    `value` is the type of the value column if values are decoded.
    """
    types = TYPES if value is None else {**TYPES, "value": value}
    types = {**types, "timestamp": "timestamp_ltz"}  # `timestamp` alone depends on a setting
    return ", ".join(f"{name} {kind}" for name, kind in types.items() if headers or name != HEADERS)


def check_columns(declared: Sequence[tuple[str, str]]) -> None:
    """Raise ConfigError unless the declared columns exist with the declared types."""
    for name, kind in declared:
        if name not in TYPES:
            raise ConfigError(f"Unknown column {name!r}. The columns are {', '.join(TYPES)}.")
        if kind != TYPES[name]:
            raise ConfigError(
                f"The type of column {name} is {TYPES[name]}, not {kind}. Cast it after reading."
            )


class Columns:
    """A converter of records to batches with the columns, order and types of `schema`."""

    def __init__(self, schema: "pa.Schema") -> None:
        self._schema = schema
        self._names = tuple(_DECODER_NAMES.get(name, name) for name in schema.names)

    def next_batch(self, records: "decoding.Records") -> "pa.RecordBatch | None":
        """Return the next rows of `records` as a batch, or None after the last row."""
        batch = to_arrow(records, columns=self._names, timestamps="us", max_bytes=_MAX_COLUMN_BYTES)
        if batch is None:
            return None
        if _TIMESTAMP in self._names:
            self._check_timestamps(batch, records)
        arrays = [
            _empty_to_null(column, field.type) if field.name == HEADERS else column
            for field, column in zip(self._schema, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _check_timestamps(self, batch: "pa.RecordBatch", records: "decoding.Records") -> None:
        """Raise MalformedTimestamp if the timestamp of a record does not fit into microseconds."""
        # a search in the bytes costs less than the import of pyarrow.compute
        data = batch.column(self._names.index(_TIMESTAMP)).buffers()[1].to_pybytes()
        for limit in _TIMESTAMP_LIMITS:
            position = data.find(limit)
            while position > 0 and position % 8:  # the bytes belong to two timestamps
                position = data.find(limit, position + 1)
            if position >= 0:
                place = f"a record of {records.topic}[{records.partition}]"
                if "offset" in self._names:
                    offset = batch.column(self._names.index("offset"))[position // 8].as_py()
                    place = f"{records.topic}[{records.partition}] offset {offset}"
                raise MalformedTimestamp(place)


def _empty_to_null(headers: Any, kind: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return the headers column with null for each empty list, as in Spark's own source.

    `kind` is the type of the column.
    """
    from pyarrow import compute  # slow to import, and few queries need headers

    empty = compute.equal(compute.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=kind, mask=empty)
