"""The conversion of Protobuf messages to Arrow columns.

A conversion function is built for each field.
"""

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
    FieldDescriptor,
    is_map,
    is_message,
    is_time,
    is_wrapper,
    type_name,
)

ColumnBuilder: TypeAlias = Callable[[Sequence[Any]], Any]
"""A function that converts messages, or the values of a field, to an Arrow array."""

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
"""The allowed Arrow types of each field type. The schema of the query selects one."""
_UNSIGNED_AND_SIGNED: Final = {  # Java reads unsigned fields as signed numbers
    **dict.fromkeys(("uint32", "fixed32"), (pa.uint32(), pa.int32())),
    **dict.fromkeys(("uint64", "fixed64"), (pa.uint64(), pa.int64())),
}


class MessageColumns:
    """A factory of functions that convert messages to Arrow columns.

    A field that is not set becomes null, unless `emit_defaults` is set.
    """

    def __init__(self, *, emit_defaults: bool) -> None:
        self._emit_defaults = emit_defaults

    def make_struct(self, message: Descriptor, kind: "pa.DataType", path: str) -> ColumnBuilder:
        """Return a function that converts messages to structs with the fields of `kind`.

        `path` names the field in errors.
        """
        by_name = message.fields_by_name
        if missing := [field.name for field in kind if field.name not in by_name]:
            raise ConfigError(
                f"The schema of {path} has fields that {message.full_name} does not have: "
                f"{', '.join(missing)}. Remove them from the schema of the query."
            )
        fields = list(kind)
        columns = [
            self._field(by_name[field.name], field.type, f"{path}.{field.name}") for field in fields
        ]

        def make(messages: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
            arrays = [column(messages) for column in columns]
            return pa.StructArray.from_arrays(arrays, fields=fields)

        return make

    def _field(self, field: FieldDescriptor, kind: "pa.DataType", path: str) -> ColumnBuilder:
        if is_map(field):
            return self._map(field, kind, path)
        if field.is_repeated:
            return self._list(field, kind, path)
        values, items = self._values(field), self._items(field, kind, path)
        return lambda messages: items(values(messages))

    def _list(self, field: FieldDescriptor, kind: "pa.DataType", path: str) -> ColumnBuilder:
        if not pa.types.is_list(kind):
            raise _type_error(path, field, kind)
        get, items = attrgetter(field.name), self._items(field, kind.value_type, f"{path}[]")

        def make(messages: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
            lists = list(map(get, messages))
            flat = items(list(chain.from_iterable(lists)))
            return pa.ListArray.from_arrays(_offsets(lists), flat, type=kind)

        return make

    def _map(self, field: FieldDescriptor, kind: "pa.DataType", path: str) -> ColumnBuilder:
        if not pa.types.is_map(kind):
            raise _type_error(path, field, kind)
        get, (key, value) = attrgetter(field.name), field.message_type.fields
        keys = self._items(key, kind.key_type, f"{path}[]")
        items = self._items(value, kind.item_type, f"{path}[]")

        def make(messages: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
            maps = [list(entries.items()) for entries in map(get, messages)]
            pairs = list(chain.from_iterable(maps))
            flat = keys([key for key, _ in pairs]), items([value for _, value in pairs])
            return pa.MapArray.from_arrays(_offsets(maps), *flat, type=kind)

        return make

    def _values(self, field: FieldDescriptor) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return a function that reads `field` of each message in a list.

        The function returns None for a message in which the field is not set.
        """
        name, get = field.name, attrgetter(field.name)
        if field.has_presence and not field.has_default_value:
            return lambda messages: [get(msg) if msg.HasField(name) else None for msg in messages]
        if field.has_presence or self._emit_defaults:
            return lambda messages: list(map(get, messages))
        if type_name(field) in ("float", "double"):  # -0.0 is serialized, and 0.0 is not
            return lambda messages: [
                value if value or math.copysign(1, value) < 0 else None
                for value in map(get, messages)
            ]
        return lambda messages: [value or None for value in map(get, messages)]

    def _items(self, field: FieldDescriptor, kind: "pa.DataType", path: str) -> ColumnBuilder:
        """Return a function that converts values of `field` to an Arrow column.

        For a repeated field these are the items of all lists.
        """
        name = type_name(field)
        if is_message(field):
            return _nullable(self._message(field, kind, path))
        if kind not in _PLAIN[name]:
            raise _type_error(path, field, kind)
        if name == "enum" and kind == pa.string():
            return _enum_names(field.enum_type)
        unsigned, signed = _UNSIGNED_AND_SIGNED.get(name, (None, None))
        if kind == signed:
            return lambda values: pa.array(values, unsigned).view(signed)
        return lambda values: pa.array(values, kind)

    def _message(self, field: FieldDescriptor, kind: "pa.DataType", path: str) -> ColumnBuilder:
        message = field.message_type
        if pa.types.is_struct(kind):
            return self.make_struct(message, kind, path)
        if (pa.types.is_timestamp(kind) and is_time(message, "Timestamp")) or (
            pa.types.is_duration(kind) and is_time(message, "Duration")
        ):
            return lambda messages: _microseconds(messages).view(kind)
        if is_wrapper(message):
            return self._field(message.fields[0], kind, path)
        raise _type_error(path, field, kind)


def _offsets(sized: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
    return pa.array(accumulate(map(len, sized), initial=0), pa.int32())


def _enum_names(enum: Any) -> ColumnBuilder:  # noqa: ANN401 - protobuf's
    names = {number: value.name for number, value in enum.values_by_number.items()}

    def name_of(number: int | None) -> str | None:
        if number is None:
            return None
        # Java, and so Spark, has this name for values that the descriptors do not contain
        return names.get(number) or f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}"

    return lambda values: pa.array(map(name_of, values), pa.string())


def _nullable(column: ColumnBuilder) -> ColumnBuilder:
    """Return a function that works like `column`, but also accepts None and converts it to null."""

    def make(values: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
        present = [value for value in values if value is not None]
        array = column(present)
        if len(present) == len(values):
            return array
        numbers = iter(range(len(present)))
        indices = [None if value is None else next(numbers) for value in values]
        return array.take(pa.array(indices, pa.int64()))

    return make


def _microseconds(messages: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow's
    seconds = pa.array([message.seconds for message in messages], pa.int64())
    nanos = pa.array([message.nanos for message in messages], pa.int64())
    return compute.add_checked(
        compute.multiply_checked(seconds, _MICROSECONDS), compute.divide(nanos, 1000)
    )


def _type_error(path: str, field: FieldDescriptor, kind: "pa.DataType") -> ConfigError:
    name = field.message_type.full_name if is_message(field) else type_name(field)
    return ConfigError(
        f"{path} is {'repeated ' if field.is_repeated else ''}{name} in "
        f"{field.containing_type.full_name} and cannot become {kind}. Without a schema, the query "
        "has the types of from_protobuf."
    )
