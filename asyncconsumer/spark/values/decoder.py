"""The decoding of record values to Arrow columns.

A mode defines the result for values that cannot be decoded.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyarrow import compute

from asyncconsumer.errors import BadValue
from asyncconsumer.spark.values.columns import Columns
from asyncconsumer.spark.values.factory import CORRUPT

if TYPE_CHECKING:
    from asyncconsumer.records import decoding

_COERCED_AT_ONCE: Final = 512  # values that are coerced one by one if some cannot be decoded


class Undecodable(Exception):
    """An error for a column with at least one value that cannot be decoded.

    The error does not tell which value that is.
    """


class Decoder(Protocol):
    """A decoder of record values to an Arrow column."""

    def decode(self, values: Any) -> Any:  # noqa: ANN401 - pyarrow's: binary without nulls -> a column
        """Return the values as a decoded column.

        Raise `Undecodable` if any value is malformed.
        """

    def coerce(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - as above
        """Return the values in a form that can be decoded, and the errors of bad values.

        The errors are a dict by index. `coerce` is called after `decode` failed. Bad values that
        are expensive to detect may be missing in the dict, because `decode` finds them.
        """


class TypedColumns:
    """A converter of records to Arrow batches that also decodes their values.

    The mode defines the result for a value that cannot be decoded:

    - PERMISSIVE: the value is null, and its text is in the column `_corrupt_record` if declared
    - DROPMALFORMED: the row is dropped
    - FAILFAST: `BadValue` is raised
    """

    def __init__(self, schema: "pa.Schema", decoder: Decoder, value_format: str, mode: str) -> None:
        self._schema = schema
        self._kind = schema.field("value").type
        self._decoder = decoder
        self._format = value_format
        self._mode = mode
        types = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
        types |= {field.name: field.type for field in schema if field.name != CORRUPT}
        self._columns = Columns(pa.schema({**types, "value": pa.binary()}))

    def next_batch(self, records: "decoding.Records") -> "pa.RecordBatch | None":
        """Return the next rows of `records` as a batch, or None after the last row.

        The batch may be empty with DROPMALFORMED.
        """
        batch = self._columns.next_batch(records)
        if batch is None:
            return None
        raw = batch.column("value")
        valid = compute.is_valid(raw)
        decoded, bad = self._decode(raw.drop_null())
        if bad and self._mode == "FAILFAST":
            first = min(bad)
            self._fail(batch.filter(valid).slice(first, 1), bad[first])
        is_bad = _insert_nulls(_flags(bad, len(decoded)), valid)
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns["value"] = _insert_nulls(decoded, valid)
        columns[CORRUPT] = _as_text(compute.if_else(is_bad, raw, None))
        arrays = [columns[name] for name in self._schema.names]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        drop = bad and self._mode == "DROPMALFORMED"
        return rows.filter(compute.invert(is_bad)) if drop else rows

    def _decode(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """Return the decoded column, and a dict with the error of each bad value by index.

        A call of the decoder costs much more than one value. If values fail, they are divided into
        small groups. A group that fails is coerced before it is decoded again.
        """
        if not len(values):
            return pa.nulls(0, self._kind), {}
        try:
            return self._decoder.decode(values), {}
        except Undecodable:
            if len(values) > _COERCED_AT_ONCE:
                return _decode_parts(self._decode, values, _COERCED_AT_ONCE)
        coerced, bad = self._decoder.coerce(values)
        good = compute.invert(_flags(bad, len(values)))
        column, also_bad = self._bisect(coerced.filter(good))
        indices = compute.indices_nonzero(good).to_pylist()
        bad |= {indices[index]: reason for index, reason in also_bad.items()}
        return _insert_nulls(column, good), bad

    def _bisect(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """Return the decoded column, and a dict with the error of each bad value by index.

        Halves of the values are decoded until each half either succeeds or is a single bad value.
        """
        if not len(values):
            return pa.nulls(0, self._kind), {}
        try:
            return self._decoder.decode(values), {}
        except Undecodable as error:
            if len(values) == 1:
                return pa.nulls(1, self._kind), {0: str(error)}
        return _decode_parts(self._bisect, values, (len(values) + 1) // 2)

    def _fail(self, row: "pa.RecordBatch", reason: str) -> None:
        topic, partition, offset = (row[name][0] for name in ("topic", "partition", "offset"))
        raise BadValue(f"{topic}[{partition}]@{offset}", self._format, reason)


def _decode_parts(
    decode: Callable[[Any], tuple[Any, dict[int, str]]],
    values: Any,  # noqa: ANN401 - pyarrow's
    size: int,
) -> tuple[Any, dict[int, str]]:
    columns: list[Any] = []
    bad: dict[int, str] = {}
    for start in range(0, len(values), size):
        column, bad_in_part = decode(values.slice(start, size))
        columns.append(column)
        bad |= {start + index: reason for index, reason in bad_in_part.items()}
    return pa.concat_arrays(columns), bad


def _flags(indices: Iterable[int], rows: int) -> Any:  # noqa: ANN401 - pyarrow's
    """Return a boolean column that is true at the given indices."""
    flags = bytearray(rows)
    for index in indices:
        flags[index] = 1
    return compute.cast(pa.array(memoryview(flags), pa.uint8()), pa.bool_())


def _insert_nulls(column: Any, valid: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return `column` with a null inserted at each position where `valid` is false.

    A boolean column gets False instead.
    """
    if len(column) == len(valid):
        return column
    indices = compute.if_else(
        valid, compute.subtract(compute.cumulative_sum(valid.cast(pa.int64())), 1), None
    )
    result = column.take(indices)
    if pa.types.is_boolean(result.type):
        return compute.fill_null(result, fill_value=False)
    return result


def _as_text(values: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return a column of bytes as text. Bytes that are not UTF-8 become replacement characters."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if value is None else value.decode(errors="replace")
            for value in values.to_pylist()
        ]
        return pa.array(texts, pa.string())
