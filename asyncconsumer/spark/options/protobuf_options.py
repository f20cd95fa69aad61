"""The options for Protobuf values.

Their names and meanings are those of Spark's `from_protobuf`.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from asyncconsumer.config import parse_bool, parse_int
from asyncconsumer.errors import ConfigError

OPTIONS: Final = (
    "messageName",
    "descFilePath",
    "binaryDescriptorSet",
    "emit.default.values",
    "enums.as.ints",
    "upcast.unsigned.ints",
    "unwrap.primitive.wrapper.types",
    "recursive.fields.max.depth",
)
_MAX_DEPTH: Final = 10  # Spark's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufOptions:
    """The message type of Protobuf values, and the options of their conversion.

    The driver reads the descriptors once, so executors need neither descriptor files nor generated
    modules.
    """

    message_name: str
    descriptor_set: bytes = field(repr=False)
    emit_defaults: bool = False
    enums_as_ints: bool = False
    upcast_unsigned: bool = False
    unwrap: bool = False
    max_depth: int | None = None


def protobuf_options(options: Mapping[str, str]) -> ProtobufOptions:
    """Return the Protobuf options in `options`, whose names are in lower case."""
    name, descriptors = _schema(options)
    depth = options.get("recursive.fields.max.depth", "").strip()
    max_depth = parse_int("recursive.fields.max.depth", depth, least=1) if depth else None
    if max_depth is not None and max_depth > _MAX_DEPTH:
        raise ConfigError(
            f"`recursive.fields.max.depth` must be at most {_MAX_DEPTH}, got {max_depth}."
        )
    return ProtobufOptions(
        message_name=name,
        descriptor_set=descriptors,
        emit_defaults=_is_set(options, "emit.default.values"),
        enums_as_ints=_is_set(options, "enums.as.ints"),
        upcast_unsigned=_is_set(options, "upcast.unsigned.ints"),
        unwrap=_is_set(options, "unwrap.primitive.wrapper.types"),
        max_depth=max_depth,
    )


def _is_set(options: Mapping[str, str], name: str) -> bool:
    return parse_bool(name, options.get(name, "false"))


def _schema(options: Mapping[str, str]) -> tuple[str, bytes]:
    name = options.get("messagename", "").strip()
    path, text = options.get("descfilepath", "").strip(), options.get("binarydescriptorset", "")
    if not name:
        raise ConfigError(
            "`valueFormat` protobuf needs `messageName`. Set it to a message of the descriptor set "
            "in `descFilePath`, or to a generated class such as orders_pb2.Order."
        )
    if path and text:
        raise ConfigError("Set `descFilePath` or `binaryDescriptorSet`, not both.")
    if path:
        return name, _file(path)
    if text:
        try:
            return name, base64.b64decode(text, validate=True)
        except ValueError as error:
            raise ConfigError(f"`binaryDescriptorSet` must be base64: {error}") from None
    return _from_class(name)


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"`descFilePath` cannot be read: {error}") from None


def _from_class(name: str) -> tuple[str, bytes]:
    """Return the message name and serialized descriptors of a class that protoc generated."""
    from asyncconsumer.serdes.models import package  # not needed by executors

    module, _, class_name = name.rpartition(".")
    try:
        descriptor = getattr(import_module(module), class_name).DESCRIPTOR
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"The class of `messageName` {name!r} cannot be imported ({error}). Name a generated "
            "class as module.Class, or set `descFilePath` to the output of protoc "
            "--include_imports --descriptor_set_out."
        ) from None
    files = package("google.protobuf.descriptor_pb2", "Protobuf").FileDescriptorSet()
    _collect(descriptor.file, files, set())
    return descriptor.full_name, files.SerializeToString()


def _collect(file: Any, files: Any, seen: set[str]) -> None:  # noqa: ANN401 - protobuf's
    """Add a file descriptor to the set `files`, after the files that it imports.

    `seen` are the names of added files.
    """
    if file.name not in seen:
        seen.add(file.name)
        for imported in file.dependencies:
            _collect(imported, files, seen)
        file.CopyToProto(files.file.add())
