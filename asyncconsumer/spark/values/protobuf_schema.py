"""Which message a descriptor set has, and what Spark's `from_protobuf` makes of its fields."""

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias

from asyncconsumer.errors import ConfigError
from asyncconsumer.serdes.models import package
from asyncconsumer.spark.options.protobuf_options import ProtobufOptions

Descriptor: TypeAlias = Any
Field: TypeAlias = Any
"""Protobuf's own, which have no types."""

_WORDS: Final = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    10: "group",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
"""The types of fields, as descriptors number them."""
_SPARKS: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32", "uint32", "fixed32"), "int"),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint64", "fixed64"), "bigint"),
    "bool": "boolean",
    "bytes": "binary",
    "enum": "string",
}
"""What Spark calls otherwise than Protobuf."""

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Int32", "UInt32", "Int64", "UInt64", "String", "Bytes", "Float", "Double")
)


def type_of(field: Field) -> str:
    """The word for a field's type, such as int32 or message."""
    return _WORDS[field.type]


def is_message(field: Field) -> bool:
    """Whether a field holds a message, or a group, which is the older form of it."""
    return type_of(field) in ("message", "group")


def is_map(field: Field) -> bool:
    """Whether a field is a map: on the wire a list of its entries."""
    return is_message(field) and bool(field.message_type.GetOptions().map_entry)


def is_wrapper(message: Descriptor) -> bool:
    """Whether a message has nothing but one value, to tell none from zero."""
    return message.full_name in _WRAPPERS


def is_time(message: Descriptor, name: str) -> bool:
    """Whether it is a Timestamp or Duration: told by its form, as Spark does."""
    names = [field.name for field in message.fields]
    return message.name == name and names == ["seconds", "nanos"]


@functools.lru_cache(maxsize=8)
def message_of(descriptor_set: bytes, name: str) -> Descriptor:
    """The descriptor of a message, by its full name, or by its last part if it is in no other."""
    descriptor_pb2 = package("google.protobuf.descriptor_pb2", "valueFormat protobuf")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
    except package("google.protobuf.message", "Protobuf").DecodeError as error:
        raise ConfigError(f"this is no set of Protobuf descriptors: {error}") from None
    pool = package("google.protobuf.descriptor_pool", "Protobuf").DescriptorPool()
    by_name = {file.name: file for file in files}
    added: set[str] = set()
    for file in files:
        _add(file, by_name, pool, added)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        names = [_full_name(file, one) for file in files for one in file.message_type]
    for full in names:
        if full.rpartition(".")[2] == name:
            return pool.FindMessageTypeByName(full)
    raise ConfigError(f"messageName {name!r} is none of {', '.join(names) or 'no messages at all'}")


def _add(file: Any, by_name: Mapping[str, Any], pool: Any, added: set[str]) -> None:  # noqa: ANN401
    """A file, behind those that it imports."""
    if file.name in added:
        return
    added.add(file.name)
    for needed in file.dependency:
        _add(by_name.get(needed) or _well_known(needed), by_name, pool, added)
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise ConfigError(f"the Protobuf descriptors of {file.name} are unsound: {error}") from None


def _well_known(name: str) -> Any:  # noqa: ANN401 - protobuf's
    """What protobuf itself brings, such as google/protobuf/timestamp.proto."""
    if name.startswith("google/protobuf/"):
        try:
            known = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
        except ImportError:
            pass
        else:
            found = package("google.protobuf.descriptor_pb2", "Protobuf").FileDescriptorProto()
            known.DESCRIPTOR.CopyToProto(found)
            return found
    raise ConfigError(
        f"the Protobuf descriptors lack {name}: have protoc make them with --include_imports"
    )


def _full_name(file: Any, message: Any) -> str:  # noqa: ANN401 - protobuf's
    return f"{file.package}.{message.name}".lstrip(".")


def struct_of(options: ProtobufOptions) -> str:
    """The type that `from_protobuf` gives the message, in Spark's words."""
    message = message_of(options.descriptor_set, options.message_name)
    found = _struct(message, options, {message.full_name: 1})
    if not found:
        raise ConfigError(f"{message.full_name} has no fields that could become columns")
    return found


def _struct(message: Descriptor, options: ProtobufOptions, around: Mapping[str, int]) -> str:
    """Empty if there is nothing in it, for Spark has no such type."""
    kinds = ((field.name, _kind(field, options, around)) for field in message.fields)
    fields = ", ".join(f"`{name}`: {kind}" for name, kind in kinds if kind)
    return f"struct<{fields}>" if fields else ""


def _kind(field: Field, options: ProtobufOptions, around: Mapping[str, int]) -> str:
    if is_map(field):
        key, value = (_single(one, options, around) for one in field.message_type.fields)
        return f"map<{key}, {value}>" if value else ""
    kind = _single(field, options, around)
    return f"array<{kind}>" if field.is_repeated and kind else kind


def _single(field: Field, options: ProtobufOptions, around: Mapping[str, int]) -> str:
    if not is_message(field):
        return _plain(field, options)
    message = field.message_type
    if is_time(message, "Timestamp"):
        return "timestamp_ltz"
    if is_time(message, "Duration"):
        return "interval day to second"
    if is_wrapper(message) and options.unwrap:
        return _plain(message.fields[0], options)
    depth = around.get(message.full_name, 0)
    if depth and options.max_depth is None:
        raise ConfigError(
            f"{field.full_name} is a message within itself: declare a schema that is as deep as "
            "needed, or set recursive.fields.max.depth"
        )
    if depth and options.max_depth is not None and depth >= options.max_depth:
        return ""
    return _struct(message, options, {**around, message.full_name: depth + 1})


def _plain(field: Field, options: ProtobufOptions) -> str:
    word = type_of(field)
    if word == "enum" and options.enums_as_ints:
        return "int"
    if options.upcast_unsigned and word in ("uint32", "uint64"):
        return "bigint" if word == "uint32" else "decimal(20, 0)"
    return _SPARKS.get(word, word)
