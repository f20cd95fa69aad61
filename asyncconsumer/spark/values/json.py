"""The decoder of JSON values. It parses the values of many records in one call."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, json

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.values.decoder import Undecodable
from asyncconsumer.spark.values.json_coercion import make_coercer

_PREFIX, _MIDDLE, _SUFFIX, _SEPARATOR = (
    pa.scalar(text, pa.binary()) for text in (b'{"w":[', b'],"v":', b"}", b"")
)
_EXTRA_BLOCK_BYTES: Final = 1024


def _find_field(kind: Any, matches: Callable[[Any], bool], name: str = "value") -> str:  # noqa: ANN401 - pyarrow's
    """Return the path of the first field for which `matches` is true, at any depth of `kind`.

    Return "" if there is none.
    """
    if matches(kind):
        return name
    if pa.types.is_list(kind):
        return _find_field(kind.value_type, matches, f"{name}[]")
    if pa.types.is_struct(kind):
        inner = (_find_field(field.type, matches, f"{name}.{field.name}") for field in kind)
        return next(filter(None, inner), "")
    return ""


def _with_nanoseconds(kind: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return the type `kind` with nanoseconds as the unit of all its timestamps."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_nanoseconds(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_nanoseconds(field.type)) for field in kind])
    return kind


def _decimals(column: Any) -> Iterator[Any]:  # noqa: ANN401 - pyarrow's
    """Yield each decimal column in `column`, at any depth."""
    if pa.types.is_decimal(column.type):
        yield column
    elif pa.types.is_list(column.type):
        yield from _decimals(column.values)
    elif pa.types.is_struct(column.type):
        for number in range(column.type.num_fields):
            yield from _decimals(column.field(number))


class JsonDecoder:
    """A decoder that uses Arrow's JSON reader.

    JSON fields that are not in the schema of the query are left out.

    Each value becomes one JSON object, `{"w":[value],"v":value}`, and only `v` is kept. A value
    that is valid in both places is exactly one JSON value. So a value cannot contain several JSON
    values, or continue in the next one.

    Values that Arrow does not accept are coerced to the result of Spark's `from_json`, if possible.
    """

    def __init__(self, kind: "pa.DataType") -> None:
        for is_unsupported in (pa.types.is_map, pa.types.is_date, pa.types.is_binary):
            if name := _find_field(kind, is_unsupported):
                raise ConfigError(
                    f"The JSON field {name} cannot be a date, a map or binary, because Arrow does "
                    "not read them from JSON. Declare a string, and use to_date(), from_json() or "
                    "unbase64() after reading."
                )
        self._coerce = make_coercer(kind)
        self._kind = kind
        self._options = [
            json.ParseOptions(
                explicit_schema=pa.schema([("v", type_)]), unexpected_field_behavior="ignore"
            )
            for type_ in dict.fromkeys((kind, _with_nanoseconds(kind)))
        ]

    def coerce(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """Return each value as JSON that fits the declared types, and the errors of bad values.

        The errors are a dict by index.
        """
        coerced, bad = values.to_pylist(), {}
        for index, value in enumerate(coerced):
            try:
                coerced[index] = self._coerce(value)
            except Undecodable as error:
                bad[index] = str(error)
        return pa.array(coerced, pa.binary()), bad

    def decode(self, values: Any) -> Any:  # noqa: ANN401 - pyarrow's
        """Return the decoded values as an Arrow column of structs."""
        try:
            values.cast(pa.string())  # because Arrow's reader does not check the encoding
        except pa.ArrowInvalid:
            raise Undecodable("the value is not UTF-8") from None
        lines = compute.binary_join_element_wise(
            _PREFIX, values, _MIDDLE, values, _SUFFIX, _SEPARATOR
        )
        all_lines = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        data = compute.binary_join(all_lines, b"\n")[0].as_buffer()
        table = self._parse(data)
        if table.num_rows != len(values):
            raise Undecodable("there is more than one JSON value")
        column = table.column("v").combine_chunks().cast(self._kind, safe=False)
        self._check_decimals(column)
        return column

    def _check_decimals(self, column: Any) -> None:  # noqa: ANN401 - pyarrow's
        """Raise Undecodable if a decimal has too many digits.

        Arrow accepts such decimals and Spark does not.
        """
        try:
            for decimals in _decimals(column):
                decimals.validate(full=True)
        except pa.ArrowInvalid as error:
            raise Undecodable(str(error)) from None

    def _parse(self, data: Any) -> Any:  # noqa: ANN401 - pyarrow's
        """Return the JSON lines in `data` as an Arrow table.

        If microseconds do not suffice, timestamps are read as nanoseconds. The later cast to the
        declared type then truncates them, as Spark does.
        """
        reading = json.ReadOptions(use_threads=False, block_size=data.size + _EXTRA_BLOCK_BYTES)
        reasons = []
        for options in self._options:
            try:
                return json.read_json(pa.BufferReader(data), reading, options)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                reasons.append(str(error).splitlines()[0])
        raise Undecodable(reasons[0])
