"""Protobuf messages with every kind of field, described without protoc."""

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import Default

_TYPES = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}
_IMPORTS = ("timestamp", "duration", "wrappers")


def _field(message: Any, number: int, name: str, kind: str) -> None:
    """Add a field. `kind` is as in a .proto file: `repeated int32`, `optional .Order`."""
    *label, word = kind.split()
    labels = {"optional": 1, "required": 2, "repeated": 3}
    field = message.field.add(name=name, number=number, label=labels[label[0]] if label else 1)
    if word in _TYPES:
        field.type = _TYPES[word]
    else:
        field.type = _TYPES["enum" if word.endswith("Color") else "message"]
        field.type_name = word
    if label == ["optional"] and word in _TYPES:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def _message(file: Any, name: str, fields: dict[str, str]) -> Any:
    message = file.message_type.add(name=name)
    for number, (field, kind) in enumerate(fields.items(), 1):
        _field(message, number, field, kind)
    return message


def _map(message: Any, number: int, name: str, key: str, value: str) -> None:
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    _field(entry, 1, "key", key)
    _field(entry, 2, "value", value)
    _field(message, number, name, f"repeated .shop.{message.name}.{entry.name}")


def _shop() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in _IMPORTS)
    color = file.enum_type.add(name="Color")
    for number, name in enumerate(("NONE", "RED", "GREEN")):
        color.value.add(name=name, number=number)
    _message(file, "Line", {"sku": "string", "count": "int32"})
    order = _message(
        file,
        "Order",
        {
            "id": "int64",
            "name": "string",
            "price": "double",
            "weight": "float",
            "paid": "bool",
            "data": "bytes",
            "color": ".shop.Color",
            "small": "uint32",
            "large": "uint64",
            "fixed": "fixed32",
            "zigzag": "sint64",
            "note": "optional string",
            "many": "optional int32",
            "line": ".shop.Line",
            "lines": "repeated .shop.Line",
            "numbers": "repeated int32",
            "colors": "repeated .shop.Color",
            "at": ".google.protobuf.Timestamp",
            "took": ".google.protobuf.Duration",
            "times": "repeated .google.protobuf.Timestamp",
            "maybe": ".google.protobuf.Int32Value",
            "text": ".google.protobuf.StringValue",
            "huge": ".google.protobuf.UInt64Value",
        },
    )
    _map(order, 24, "stock", "string", "int32")
    _map(order, 25, "byid", "int32", ".shop.Line")
    _message(file, "Node", {"name": "string", "next": ".shop.Node", "all": "repeated .shop.Node"})
    _message(file, "Nothing", {})
    return file


def _old() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    message = _message(
        file,
        "Old",
        {"id": "required int32", "size": "int32", "name": "string", "color": ".old.Color"},
    )
    message.field[1].default_value = "7"
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=1)
    inner = message.nested_type.add(name="Inner")
    _field(inner, 1, "a", "int32")
    return file


SHOP, OLD = _shop(), _old()


def descriptor_set(*, imports: bool = True) -> bytes:
    """Return the output of `protoc --descriptor_set_out`, with or without `--include_imports`."""
    result = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2) if imports else ():
        module.DESCRIPTOR.CopyToProto(result.file.add())
    result.file.extend([SHOP, OLD])
    data: bytes = result.SerializeToString()
    return data


def _classes() -> dict[str, Any]:
    for file in (SHOP, OLD):
        Default().AddSerializedFile(file.SerializeToString())
    names = {"Order": "shop.Order", "Line": "shop.Line", "Node": "shop.Node", "Old": "old.Old"}
    result = {name: Default().FindMessageTypeByName(full) for name, full in names.items()}
    return {name: message_factory.GetMessageClass(each) for name, each in result.items()}


_CLASSES = _classes()
Order, Line, Node, Old = (_CLASSES[name] for name in ("Order", "Line", "Node", "Old"))
"""Like the classes that protoc generates."""
