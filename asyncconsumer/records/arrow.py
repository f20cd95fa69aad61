"""The conversion of records to Arrow batches, without a Python object per record.

With `copy`, keys and values are `binary` columns, as Spark needs them. Without `copy`, they are
`binary_view` columns. A view refers to the fetch buffer or to a decompressed record batch, which
the Arrow array keeps in memory.
"""

import functools
import importlib
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from asyncconsumer.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from asyncconsumer.records._pure import Records
    from asyncconsumer.records.arrow_buffers import BytesBuffers

COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
)
MOST_BYTES: Final = 2**31 - 1
"""The largest offset within one `binary` column; a batch ends before it."""

MOST_ROWS: Final = 2**18
"""The row limit of a batch.

The smallest records decompress to a thousand times their size, and each row has all columns.
"""

Timestamps = Literal["int64", "ms", "us"]
"""Milliseconds as integers, `timestamp[ms, UTC]`, or `timestamp[us, UTC]` as Spark needs it."""

_FLAGS: Final = {
    "offset": 1,
    "timestamp": 2,
    "timestamp_type": 4,
    "key": 8,
    "value": 16,
    "headers": 32,
}
_AS_VIEWS: Final = 64


class _Table(NamedTuple):
    """The Arrow buffers that `Records.take_columns` returns."""

    rows: int
    offset: bytes
    timestamp: bytes
    timestamp_type: bytes
    key: "BytesBuffers"
    value: "BytesBuffers"
    lists: bytes
    header_key: "BytesBuffers"
    header_value: "BytesBuffers"
    buffers: list[object]  # the memory that views refer to


def to_arrow(
    records: "Records",
    *,
    copy: bool = True,
    max_rows: int | None = None,
    columns: Sequence[str] = COLUMNS,
    timestamps: Timestamps = "int64",
    max_bytes: int = MOST_BYTES,
) -> "pa.RecordBatch | None":
    """Return the next records as an Arrow batch of up to `max_rows` rows, or None without records.

    Large records make the batch shorter, because the bytes that it copies are limited by
    `max_bytes`. If corrupt data follows, the records before it are returned. The next call raises
    `CorruptRecords`.
    """
    schema = checked_schema(columns, copy=copy, max_rows=max_rows, timestamps=timestamps)
    flags = _flags(tuple(columns), copy=copy)
    scale = 1000 if timestamps == "us" else 1
    most_rows = min(max_rows or MOST_ROWS, MOST_ROWS)
    taken = records.take_columns(flags, most_rows, max_bytes, scale)
    if taken is None:
        return None
    table = _Table(*taken)
    arrays = [_array(field, table, records) for field in schema]
    return _pyarrow().RecordBatch.from_arrays(arrays, schema=schema)


def checked_schema(
    columns: Sequence[str], *, copy: bool, max_rows: int | None, timestamps: Timestamps
) -> "pa.Schema":
    """Return the Arrow schema for arguments of `to_arrow`.

    Raise `ConfigError` if one is not valid.
    """
    if max_rows is not None and max_rows < 1:
        raise ConfigError(f"max_rows={max_rows}: it must be at least 1, or None for all")
    return schema_of(tuple(columns), copy=copy, timestamps=timestamps)


@functools.lru_cache(maxsize=64)
def _flags(columns: tuple[str, ...], *, copy: bool) -> int:
    return sum(_FLAGS.get(name, 0) for name in columns) | (0 if copy else _AS_VIEWS)


@functools.cache
def _pyarrow() -> Any:  # noqa: ANN401 - a module without types
    try:
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise ImportError(
            "Arrow columns need pyarrow: pip install 'asyncconsumer[arrow]'"
        ) from error


@functools.lru_cache(maxsize=64)
def schema_of(
    columns: tuple[str, ...] = COLUMNS, *, copy: bool = True, timestamps: Timestamps = "int64"
) -> "pa.Schema":
    """Return the Arrow schema of the batches that `to_arrow` returns for the same arguments."""
    pa = _pyarrow()
    times = {
        "int64": pa.int64(),
        "ms": pa.timestamp("ms", tz="UTC"),
        "us": pa.timestamp("us", tz="UTC"),
    }
    data = pa.binary() if copy else pa.binary_view()
    types = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": times.get(timestamps),
        "timestamp_type": pa.int32(),
        "key": data,
        "value": data,
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    if unknown := [name for name in columns if name not in types]:
        known = ", ".join(COLUMNS)
        raise ConfigError(f"no such column: {', '.join(unknown)}; the columns are {known}")
    if timestamps not in times:
        raise ConfigError(f"timestamps={timestamps!r}: use one of {', '.join(times)}")
    return pa.schema([(name, types[name]) for name in columns])


def _array(field: Any, table: _Table, records: "Records") -> Any:  # noqa: ANN401 - pyarrow's
    pa, rows = _pyarrow(), table.rows
    if field.name == "topic":
        return _repeated(records.topic, rows)
    if field.name == "partition":
        return pa.Array.from_buffers(
            field.type, rows, [None, pa.py_buffer(array("i", [records.partition]) * rows)]
        )
    if field.name in ("key", "value"):
        return _binary(field.type, rows, getattr(table, field.name), table.buffers)
    if field.name == "headers":
        return _headers(field.type, table)
    return pa.Array.from_buffers(field.type, rows, [None, pa.py_buffer(getattr(table, field.name))])


def _binary(kind: Any, rows: int, column: "BytesBuffers", buffers: list[object]) -> Any:  # noqa: ANN401
    pa = _pyarrow()
    valid, nulls, places, data = column
    parts = [valid, places, *(buffers or [data])]
    return pa.Array.from_buffers(
        kind, rows, [None if part is None else pa.py_buffer(part) for part in parts], nulls
    )


def _headers(kind: Any, table: _Table) -> Any:  # noqa: ANN401 - pyarrow's
    pa = _pyarrow()
    pairs = memoryview(table.header_key[2]).nbytes // 4 - 1
    keys = _binary(pa.string(), pairs, table.header_key, [])
    values = _binary(pa.binary(), pairs, table.header_value, [])
    struct = pa.Array.from_buffers(kind.value_type, pairs, [None], 0, children=[keys, values])
    lists = pa.py_buffer(table.lists)
    return pa.Array.from_buffers(kind, table.rows, [None, lists], 0, children=[struct])


def _repeated(topic: str, rows: int) -> Any:  # noqa: ANN401 - pyarrow's
    """Return a string column that has `topic` in each of `rows` rows.

    The column is a slice of a longer column, which is cached.
    """
    return _many(topic, max(1024, 1 << (rows - 1).bit_length())).slice(0, rows)


@functools.lru_cache(maxsize=32)
def _many(topic: str, rows: int) -> Any:  # noqa: ANN401 - pyarrow's
    pa, text = _pyarrow(), topic.encode()
    step = len(text)
    ends = array("i", range(0, step * rows + 1, step)) if step else array("i", [0]) * (rows + 1)
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)]
    )
