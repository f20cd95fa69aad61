"""The message types of a Protobuf descriptor set, and their Spark types.

The Spark types are those that `from_protobuf` returns.
"""

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, TypeAlias

from asyncconsumer.errors import ConfigError
from asyncconsumer.serdes.models import package
from asyncconsumer.spark.options.protobuf_options import ProtobufOptions

Descriptor: TypeAlias = Any
FieldDescriptor: TypeAlias = Any
"""Descriptors of the protobuf package, which has no type hints."""

_TYPE_NAMES: Final = {
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
"""The names of field types by their numbers in descriptors."""
_SPARK_TYPES: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32", "uint32", "fixed32"), "int"),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint64", "fixed64"), "bigint"),
    "bool": "boolean",
    "bytes": "binary",
    "enum": "string",
}
"""The Spark types whose names differ from Protobuf's."""

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Int32", "UInt32", "Int64", "UInt64", "String", "Bytes", "Float", "Double")
)


def type_name(field: FieldDescriptor) -> str:
    """Return the name of a field's type, such as int32 or message."""
    return _TYPE_NAMES[field.type]


def is_message(field: FieldDescriptor) -> bool:
    """Return whether a field is a message or a group."""
    return type_name(field) in ("message", "group")


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map, which is serialized as a list of entry messages."""
    return is_message(field) and bool(field.message_type.GetOptions().map_entry)


def is_wrapper(message: Descriptor) -> bool:
    """Return whether a message type wraps one value, such as google.protobuf.Int32Value."""
    return message.full_name in _WRAPPERS


def is_time(message: Descriptor, name: str) -> bool:
    """Return whether a message type is called `name` and has the fields of a Timestamp or Duration.

    Spark applies the same rule.
    """
    names = [field.name for field in message.fields]
    return message.name == name and names == ["seconds", "nanos"]


@functools.lru_cache(maxsize=8)
def find_message(descriptor_set: bytes, name: str) -> Descriptor:
    """Return the descriptor of a message type by its full name, or by the last part of its name."""
    descriptor_pb2 = package("google.protobuf.descriptor_pb2", "valueFormat protobuf")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
    except package("google.protobuf.message", "Protobuf").DecodeError as error:
        raise ConfigError(f"The Protobuf descriptor set cannot be parsed: {error}") from None
    pool = package("google.protobuf.descriptor_pool", "Protobuf").DescriptorPool()
    by_name = {file.name: file for file in files}
    added: set[str] = set()
    for file in files:
        _add(file, by_name, pool, added)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        names = [_full_name(file, message) for file in files for message in file.message_type]
    for full_name in names:
        if full_name.rpartition(".")[2] == name:
            return pool.FindMessageTypeByName(full_name)
    raise ConfigError(
        f"`messageName` {name!r} is not in the descriptor set, which has "
        f"{', '.join(names) or 'no messages'}."
    )


def _add(file: Any, by_name: Mapping[str, Any], pool: Any, added: set[str]) -> None:  # noqa: ANN401
    """Add the file descriptor `file` to the pool, after the files that it imports.

    `by_name` maps file names to descriptors. `added` are the names of files in the pool.
    """
    if file.name in added:
        return
    added.add(file.name)
    for imported in file.dependency:
        _add(by_name.get(imported) or _well_known(imported), by_name, pool, added)
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise ConfigError(f"The Protobuf descriptors of {file.name} are invalid: {error}") from None


def _well_known(name: str) -> Any:  # noqa: ANN401 - protobuf's
    """Return the descriptor of a file that the protobuf package contains.

    An example is google/protobuf/timestamp.proto.
    """
    if name.startswith("google/protobuf/"):
        try:
            known = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
        except ImportError:
            pass
        else:
            file = package("google.protobuf.descriptor_pb2", "Protobuf").FileDescriptorProto()
            known.DESCRIPTOR.CopyToProto(file)
            return file
    raise ConfigError(
        f"The Protobuf descriptor set does not contain {name}. Create it with protoc "
        "--include_imports."
    )


def _full_name(file: Any, message: Any) -> str:  # noqa: ANN401 - protobuf's
    return f"{file.package}.{message.name}".lstrip(".")


def struct_ddl(options: ProtobufOptions) -> str:
    """Return the Spark type of the message type as DDL, as `from_protobuf` defines it."""
    message = find_message(options.descriptor_set, options.message_name)
    ddl = _struct(message, options, {message.full_name: 1})
    if not ddl:
        raise ConfigError(f"The message {message.full_name} has no fields for columns.")
    return ddl


def _struct(message: Descriptor, options: ProtobufOptions, depths: Mapping[str, int]) -> str:
    """Return the Spark struct type of a message type as DDL.

    Return "" if no fields are left, because Spark has no empty struct.

    `depths` counts how often each message type encloses this one.
    """
    kinds = ((field.name, _kind(field, options, depths)) for field in message.fields)
    fields = ", ".join(f"`{name}`: {kind}" for name, kind in kinds if kind)
    return f"struct<{fields}>" if fields else ""


def _kind(field: FieldDescriptor, options: ProtobufOptions, depths: Mapping[str, int]) -> str:
    if is_map(field):
        key, value = (_single(part, options, depths) for part in field.message_type.fields)
        return f"map<{key}, {value}>" if value else ""
    kind = _single(field, options, depths)
    return f"array<{kind}>" if field.is_repeated and kind else kind


def _single(field: FieldDescriptor, options: ProtobufOptions, depths: Mapping[str, int]) -> str:
    if not is_message(field):
        return _plain(field, options)
    message = field.message_type
    if is_time(message, "Timestamp"):
        return "timestamp_ltz"
    if is_time(message, "Duration"):
        return "interval day to second"
    if is_wrapper(message) and options.unwrap:
        return _plain(message.fields[0], options)
    depth = depths.get(message.full_name, 0)
    if depth and options.max_depth is None:
        raise ConfigError(
            f"The Protobuf field {field.full_name} is recursive. Declare a schema for the query, "
            "or set `recursive.fields.max.depth`."
        )
    if depth and options.max_depth is not None and depth >= options.max_depth:
        return ""
    return _struct(message, options, {**depths, message.full_name: depth + 1})


def _plain(field: FieldDescriptor, options: ProtobufOptions) -> str:
    name = type_name(field)
    if name == "enum" and options.enums_as_ints:
        return "int"
    if options.upcast_unsigned and name in ("uint32", "uint64"):
        return "bigint" if name == "uint32" else "decimal(20, 0)"
    return _SPARK_TYPES.get(name, name)
