"""Values as columns: decoded in Arrow, and what to do with those that cannot be."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyarrow import compute

from asyncconsumer.errors import BadValue
from asyncconsumer.spark.columns import Columns
from asyncconsumer.spark.values import CORRUPT

if TYPE_CHECKING:
    from asyncconsumer.wire import accel

_FEW: Final = 512  # values that are looked at one by one if some are bad


class Undecodable(Exception):
    """Some value of a column is not what it should be; which one is not known."""


class Decoder(Protocol):
    """Makes a column of values."""

    def decode(self, values: Any) -> Any:  # noqa: ANN401 - pyarrow's: binary without nulls -> a column
        """One for each, or Undecodable."""

    def hopeless(self, values: Any) -> Sequence[int]:  # noqa: ANN401 - as above
        """Which ones surely cannot be decoded, as far as that is cheaper to tell than to try."""


class TypedColumns:
    """Batches like those of `Columns`, with the value decoded.

    What cannot be decoded is, by `mode`, null and in the column `_corrupt_record` if there is one
    (PERMISSIVE), or left out (DROPMALFORMED), or an error (FAILFAST).
    """

    def __init__(self, schema: "pa.Schema", decoder: Decoder, value_format: str, mode: str) -> None:
        self._schema = schema
        self._decoder = decoder
        self._format = value_format
        self._mode = mode
        wanted = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
        wanted |= {field.name: field.type for field in schema if field.name != CORRUPT}
        self._columns = Columns(pa.schema({**wanted, "value": pa.binary()}))

    def of(self, records: "accel.Records") -> "pa.RecordBatch | None":
        """The next rows; None when there are no more. A batch may be empty: all were left out."""
        batch = self._columns.of(records)
        if batch is None:
            return None
        raw = batch.column("value")
        given = compute.is_valid(raw)
        decoded, bad = self._decoded(raw.drop_null())
        if bad and self._mode == "FAILFAST":
            self._fail(batch.filter(given).slice(bad[0], 1))
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

    def _decoded(self, values: Any) -> tuple[Any, list[int]]:  # noqa: ANN401 - pyarrow's
        """The column, and which of it are bad: halves are tried where the whole cannot be.

        Trying costs much more than a value does. So in a part that is small enough the decoder
        looks at each value first, and what it knows to be bad is not tried again.
        """
        kind = self._schema.field("value").type
        if not len(values):
            return pa.nulls(0, kind), []
        try:
            return self._decoder.decode(values), []
        except Undecodable:
            if len(values) == 1:
                return pa.nulls(1, kind), [0]
        if len(values) <= _FEW and (hopeless := self._decoder.hopeless(values)):
            return self._decoded_without(hopeless, values)
        middle = len(values) // 2
        first, bad = self._decoded(values.slice(0, middle))
        second, worse = self._decoded(values.slice(middle))
        return pa.concat_arrays([first, second]), bad + [middle + index for index in worse]

    def _decoded_without(self, hopeless: Sequence[int], values: Any) -> tuple[Any, list[int]]:  # noqa: ANN401 - pyarrow's
        good = compute.invert(_flags(hopeless, len(values)))
        found, bad = self._decoded(values.filter(good))
        places = compute.indices_nonzero(good).to_pylist()
        return _spread(found, good), sorted([*hopeless, *(places[index] for index in bad)])

    def _fail(self, row: "pa.RecordBatch") -> None:
        topic, partition, offset = (row[name][0] for name in ("topic", "partition", "offset"))
        try:
            self._decoder.decode(row.column("value"))
        except Undecodable as error:
            raise BadValue(f"{topic}[{partition}]@{offset}", self._format, str(error)) from None


def _flags(places: Sequence[int], rows: int) -> Any:  # noqa: ANN401 - pyarrow's
    flags = bytearray(rows)
    for place in places:
        flags[place] = 1
    return compute.cast(pa.array(memoryview(flags), pa.uint8()), pa.bool_())


def _spread(column: Any, given: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """With nulls in between, where no value was given."""
    if len(column) == len(given):
        return column
    places = compute.if_else(
        given, compute.subtract(compute.cumulative_sum(given.cast(pa.int64())), 1), None
    )
    found = column.take(places)
    return compute.fill_null(found, fill_value=False) if pa.types.is_boolean(found.type) else found


def _texts(values: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Bytes as text, whatever they are: it is for people to look at."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if one is None else one.decode(errors="replace") for one in values.to_pylist()
        ]
        return pa.array(texts, pa.string())
