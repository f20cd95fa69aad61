"""Messages as columns, one field after the other: what is done to each is decided once."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import compute

from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.values.protobuf_schema import (
    Descriptor,
    Field,
    is_map,
    is_message,
    is_time,
    is_wrapper,
    type_of,
)

Column: TypeAlias = Callable[[Sequence[Any]], Any]
"""Makes an Arrow array of messages, or of what they have in a field; None stands for null."""

_MICROSECONDS: Final = 1_000_000
_PLAIN: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (pa.int32(),)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (pa.int64(),)),
    **dict.fromkeys(("uint32", "fixed32"), (pa.int32(), pa.int64())),
    **dict.fromkeys(("uint64", "fixed64"), (pa.int64(), pa.decimal128(20, 0))),
    "float": (pa.float32(),),
    "double": (pa.float64(),),
    "bool": (pa.bool_(),),
    "string": (pa.string(),),
    "bytes": (pa.binary(),),
    "enum": (pa.string(), pa.int32()),
}
"""What a field may become: which of these is for the query to declare."""
_AS_JAVA_SEES_IT: Final = {
    **dict.fromkeys(("uint32", "fixed32"), (pa.uint32(), pa.int32())),
    **dict.fromkeys(("uint64", "fixed64"), (pa.uint64(), pa.int64())),
}


class MessageColumns:
    """As `from_protobuf` makes them: what is not set is null, unless defaults are wanted."""

    def __init__(self, *, emit_defaults: bool) -> None:
        self._emit_defaults = emit_defaults

    def of(self, message: Descriptor, kind: "pa.DataType", path: str) -> Column:
        """What makes structs of messages, with the fields that the struct has."""
        by_name = message.fields_by_name
        if lacking := [field.name for field in kind if field.name not in by_name]:
            raise ConfigError(
                f"{path}: {message.full_name} has no field {', '.join(lacking)}, but the query has"
            )
        fields = list(kind)
        columns = [
            self._field(by_name[field.name], field.type, f"{path}.{field.name}") for field in fields
        ]

        def make(messages: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
            arrays = [column(messages) for column in columns]
            return pa.StructArray.from_arrays(arrays, fields=fields)

        return make

    def _field(self, field: Field, kind: "pa.DataType", path: str) -> Column:
        if is_map(field):
            return self._map(field, kind, path)
        if field.is_repeated:
            return self._list(field, kind, path)
        values, items = self._values(field), self._items(field, kind, path)
        return lambda messages: items(values(messages))

    def _list(self, field: Field, kind: "pa.DataType", path: str) -> Column:
        if not pa.types.is_list(kind):
            raise _unfit(path, field, kind)
        get, items = attrgetter(field.name), self._items(field, kind.value_type, f"{path}[]")

        def make(messages: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
            lists = list(map(get, messages))
            flat = items(list(chain.from_iterable(lists)))
            return pa.ListArray.from_arrays(_offsets(lists), flat, type=kind)

        return make

    def _map(self, field: Field, kind: "pa.DataType", path: str) -> Column:
        if not pa.types.is_map(kind):
            raise _unfit(path, field, kind)
        get, (key, value) = attrgetter(field.name), field.message_type.fields
        keys = self._items(key, kind.key_type, f"{path}[]")
        items = self._items(value, kind.item_type, f"{path}[]")

        def make(messages: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
            maps = [list(each.items()) for each in map(get, messages)]
            pairs = list(chain.from_iterable(maps))
            flat = keys([one for one, _ in pairs]), items([one for _, one in pairs])
            return pa.MapArray.from_arrays(_offsets(maps), *flat, type=kind)

        return make

    def _values(self, field: Field) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Of messages, the one value that each has; None if it counts as not set."""
        name, get = field.name, attrgetter(field.name)
        if field.has_presence and not field.has_default_value:
            return lambda messages: [get(one) if one.HasField(name) else None for one in messages]
        if field.has_presence or self._emit_defaults:
            return lambda messages: list(map(get, messages))
        if type_of(field) in ("float", "double"):  # -0.0 is on the wire, and 0.0 is not
            return lambda messages: [
                one if one or math.copysign(1, one) < 0 else None for one in map(get, messages)
            ]
        return lambda messages: [one or None for one in map(get, messages)]

    def _items(self, field: Field, kind: "pa.DataType", path: str) -> Column:
        """Of values, whether each is a field's or they are in a list."""
        word = type_of(field)
        if is_message(field):
            return _spread(self._message(field, kind, path))
        if kind not in _PLAIN[word]:
            raise _unfit(path, field, kind)
        if word == "enum" and kind == pa.string():
            return _names(field.enum_type)
        unsigned, signed = _AS_JAVA_SEES_IT.get(word, (None, None))
        if kind == signed:
            return lambda values: pa.array(values, unsigned).view(signed)
        return lambda values: pa.array(values, kind)

    def _message(self, field: Field, kind: "pa.DataType", path: str) -> Column:
        message = field.message_type
        if pa.types.is_struct(kind):
            return self.of(message, kind, path)
        if (pa.types.is_timestamp(kind) and is_time(message, "Timestamp")) or (
            pa.types.is_duration(kind) and is_time(message, "Duration")
        ):
            return lambda messages: _microseconds(messages).view(kind)
        if is_wrapper(message):
            return self._field(message.fields[0], kind, path)
        raise _unfit(path, field, kind)


def _offsets(sized: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
    return pa.array(accumulate(map(len, sized), initial=0), pa.int32())


def _names(enum: Any) -> Column:  # noqa: ANN401 - protobuf's
    names = {number: value.name for number, value in enum.values_by_number.items()}

    def name_of(number: int | None) -> str | None:
        if number is None:
            return None
        # what is newer than the descriptors has this name in Java, and so in Spark
        return names.get(number) or f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}"

    return lambda values: pa.array(map(name_of, values), pa.string())


def _spread(column: Column) -> Column:
    """The same, of values some of which are None."""

    def make(values: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
        given = [value for value in values if value is not None]
        found = column(given)
        if len(given) == len(values):
            return found
        numbers = iter(range(len(given)))
        places = [None if value is None else next(numbers) for value in values]
        return found.take(pa.array(places, pa.int64()))

    return make


def _microseconds(messages: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
    seconds = pa.array([one.seconds for one in messages], pa.int64())
    nanos = pa.array([one.nanos for one in messages], pa.int64())
    return compute.add_checked(
        compute.multiply_checked(seconds, _MICROSECONDS), compute.divide(nanos, 1000)
    )


def _unfit(path: str, field: Field, kind: "pa.DataType") -> ConfigError:
    what = field.message_type.full_name if is_message(field) else type_of(field)
    return ConfigError(
        f"{path} is {'repeated ' if field.is_repeated else ''}{what} in "
        f"{field.containing_type.full_name} and cannot become {kind}. Without a schema in the "
        "query each field has the type that from_protobuf gives it"
    )
