"""JSON values, all of a batch at once."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, json

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.values.decoder import Undecodable
from asyncconsumer.spark.values.json_coercion import mender

_BEFORE, _AGAIN, _BEHIND, _NOTHING = (
    pa.scalar(text, pa.binary()) for text in (b'{"w":[', b'],"v":', b"}", b"")
)
_ROOM: Final = 1024


def _first(kind: Any, unwanted: Callable[[Any], bool], name: str = "value") -> str:  # noqa: ANN401 - pyarrow's
    """The first field of a type that is unwanted, at any depth; "" if there is none."""
    if unwanted(kind):
        return name
    if pa.types.is_list(kind):
        return _first(kind.value_type, unwanted, f"{name}[]")
    if pa.types.is_struct(kind):
        inner = (_first(field.type, unwanted, f"{name}.{field.name}") for field in kind)
        return next(filter(None, inner), "")
    return ""


def _finer(kind: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """The same, but that times have nanoseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_finer(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_finer(field.type)) for field in kind])
    return kind


def _decimals(column: Any) -> Iterator[Any]:  # noqa: ANN401 - pyarrow's
    """The columns of decimals in it, at any depth."""
    if pa.types.is_decimal(column.type):
        yield column
    elif pa.types.is_list(column.type):
        yield from _decimals(column.values)
    elif pa.types.is_struct(column.type):
        for number in range(column.type.num_fields):
            yield from _decimals(column.field(number))


class JsonDecoder:
    """Parses with Arrow's own reader. Fields that the schema does not have are left out.

    Each value is put into an object of its own: so nothing that a value contains can be taken for
    more than one, or for a part of its neighbour. It is put there twice, in a list and as a member:
    what is right in both places is one value with nothing behind it. The list is not kept.

    What Arrow does not take is mended, where it can be, to what Spark's `from_json` makes of it.
    """

    def __init__(self, kind: "pa.DataType") -> None:
        for unreadable in (pa.types.is_map, pa.types.is_date, pa.types.is_binary):
            if name := _first(kind, unreadable):
                raise ConfigError(
                    f"JSON field {name}: Arrow reads no dates, no maps and no base64 from JSON; "
                    "take string, and to_date(), from_json() or unbase64() after reading"
                )
        self._mend = mender(kind)
        self._kind = kind
        self._options = [
            json.ParseOptions(
                explicit_schema=pa.schema([("v", one)]), unexpected_field_behavior="ignore"
            )
            for one in dict.fromkeys((kind, _finer(kind)))
        ]

    def mended(self, values: Any) -> tuple[Any, dict[int, str]]:  # noqa: ANN401 - pyarrow's
        """What Arrow takes, Python's parser takes as well; what neither does is no JSON."""
        found, hopeless = values.to_pylist(), {}
        for number, value in enumerate(found):
            try:
                found[number] = self._mend(value)
            except Undecodable as error:
                hopeless[number] = str(error)
        return pa.array(found, pa.binary()), hopeless

    def decode(self, values: Any) -> Any:  # noqa: ANN401 - pyarrow's
        """A column of structs."""
        try:
            values.cast(pa.string())  # Arrow's reader does not look
        except pa.ArrowInvalid:
            raise Undecodable("it is not UTF-8") from None
        lines = compute.binary_join_element_wise(_BEFORE, values, _AGAIN, values, _BEHIND, _NOTHING)
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        data = compute.binary_join(whole, b"\n")[0].as_buffer()
        table = self._parsed(data)
        if table.num_rows != len(values):
            raise Undecodable("it is more than one value")
        made = table.column("v").combine_chunks().cast(self._kind, safe=False)
        self._check_decimals(made)
        return made

    def _check_decimals(self, made: Any) -> None:  # noqa: ANN401 - pyarrow's
        """Raise for one with too many digits: Arrow's reader takes it, and Spark would fail."""
        try:
            for column in _decimals(made):
                column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise Undecodable(str(error)) from None

    def _parsed(self, data: Any) -> Any:  # noqa: ANN401 - pyarrow's
        """A table. Times with nanoseconds are cut to what Spark has, as Spark itself does."""
        reading = json.ReadOptions(use_threads=False, block_size=data.size + _ROOM)
        reasons = []
        for options in self._options:
            try:
                return json.read_json(pa.BufferReader(data), reading, options)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                reasons.append(str(error).splitlines()[0])
        raise Undecodable(reasons[0])
