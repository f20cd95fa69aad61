"""Values decoded to Arrow columns, and the handling of values that cannot be decoded."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyarrow import compute

from asyncconsumer.errors import BadValue
from asyncconsumer.spark.values.columns import Columns
from asyncconsumer.spark.values.factory import CORRUPT

if TYPE_CHECKING:
    from asyncconsumer.records import decoding

_FEW: Final = 512  # values that are looked at one by one if some are bad


class Undecodable(Exception):
    """An error that says that some value of a column, not which one, cannot be decoded."""


class Decoder(Protocol):
    """A decoder of values to a column."""

    def decode(self, values: Any) -> Any:  # noqa: ANN401 - pyarrow's: binary without nulls -> a column
        """Return a decoded column, or raise `Undecodable`."""

    def mended(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - as above
        """Each with what makes it decodable, and those that surely are not, with the reason.

        As far as that is cheaper to tell than to try. It is asked when some cannot be decoded.
        """


class TypedColumns:
    """Batches like those of `Columns`, with the value decoded.

    What cannot be decoded is, by `mode`, null and in the column `_corrupt_record` if there is one
    (PERMISSIVE), or left out (DROPMALFORMED), or an error (FAILFAST).
    """

    def __init__(self, schema: "pa.Schema", decoder: Decoder, value_format: str, mode: str) -> None:
        self._schema = schema
        self._kind = schema.field("value").type
        self._decoder = decoder
        self._format = value_format
        self._mode = mode
        wanted = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
        wanted |= {field.name: field.type for field in schema if field.name != CORRUPT}
        self._columns = Columns(pa.schema({**wanted, "value": pa.binary()}))

    def of(self, records: "decoding.Records") -> "pa.RecordBatch | None":
        """The next rows; None when there are no more. A batch may be empty: all were left out."""
        batch = self._columns.of(records)
        if batch is None:
            return None
        raw = batch.column("value")
        given = compute.is_valid(raw)
        decoded, bad = self._decoded(raw.drop_null())
        if bad and self._mode == "FAILFAST":
            first = min(bad)
            self._fail(batch.filter(given).slice(first, 1), bad[first])
        is_bad = _spread(_flags(bad, len(decoded)), given)
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns["value"] = _spread(decoded, given)
        columns[CORRUPT] = _texts(compute.if_else(is_bad, raw, None))
        arrays = [columns[name] for name in self._schema.names]
        made = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return made.filter(compute.invert(is_bad)) if bad and self._drops else made

    @property
    def _drops(self) -> bool:
        return self._mode == "DROPMALFORMED"

    def _decoded(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """The column, and which of it are bad, with the reason.

        Trying costs much more than a value does. So where a part that is small enough cannot be
        decoded, the decoder looks at each of its values before any is tried again.
        """
        if not len(values):
            return pa.nulls(0, self._kind), {}
        try:
            return self._decoder.decode(values), {}
        except Undecodable:
            if len(values) > _FEW:
                return _in_parts(self._decoded, values, _FEW)
        mended, hopeless = self._decoder.mended(values)
        good = compute.invert(_flags(hopeless, len(values)))
        found, bad = self._tried(mended.filter(good))
        places = compute.indices_nonzero(good).to_pylist()
        return _spread(found, good), hopeless | {places[at]: why for at, why in bad.items()}

    def _tried(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """The same, without a look: halves are tried where the whole cannot be decoded."""
        if not len(values):
            return pa.nulls(0, self._kind), {}
        try:
            return self._decoder.decode(values), {}
        except Undecodable as error:
            if len(values) == 1:
                return pa.nulls(1, self._kind), {0: str(error)}
        return _in_parts(self._tried, values, (len(values) + 1) // 2)

    def _fail(self, row: "pa.RecordBatch", reason: str) -> None:
        topic, partition, offset = (row[name][0] for name in ("topic", "partition", "offset"))
        raise BadValue(f"{topic}[{partition}]@{offset}", self._format, reason)


def _in_parts(
    decoded: Callable[[Any], tuple[Any, dict[int, str]]],
    values: Any,  # noqa: ANN401 - pyarrow's
    size: int,
) -> tuple[Any, dict[int, str]]:
    columns: list[Any] = []
    bad: dict[int, str] = {}
    for start in range(0, len(values), size):
        column, worse = decoded(values.slice(start, size))
        columns.append(column)
        bad |= {start + at: why for at, why in worse.items()}
    return pa.concat_arrays(columns), bad


def _flags(places: Iterable[int], rows: int) -> Any:  # noqa: ANN401 - pyarrow's
    flags = bytearray(rows)
    for place in places:
        flags[place] = 1
    return compute.cast(pa.array(memoryview(flags), pa.uint8()), pa.bool_())


def _spread(column: Any, given: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return the column with nulls where `given` is false."""
    if len(column) == len(given):
        return column
    places = compute.if_else(
        given, compute.subtract(compute.cumulative_sum(given.cast(pa.int64())), 1), None
    )
    found = column.take(places)
    return compute.fill_null(found, fill_value=False) if pa.types.is_boolean(found.type) else found


def _texts(values: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return bytes as text, with replacements for what is not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if one is None else one.decode(errors="replace") for one in values.to_pylist()
        ]
        return pa.array(texts, pa.string())
