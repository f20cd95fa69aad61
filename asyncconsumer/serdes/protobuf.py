"""The decoding of Protobuf messages. It checks that each message has the expected type."""

import base64
import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from asyncconsumer.errors import NotFramed, WrongSchema
from asyncconsumer.serdes.models import package
from asyncconsumer.serdes.schemas import Schema
from asyncconsumer.serdes.wire_format import START, unusable

Path: TypeAlias = tuple[int, ...]
"""The index of a message in its file, then the index in each message that contains it."""

_FIRST: Final = (0,)
_DEEPEST: Final = 32
_PIECES: Final = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | [\w.]+ | [{};]""",
    re.VERBOSE | re.DOTALL,
)
_COMMON: Final = re.compile(r"google/(?:protobuf|type)/\w+\.proto")
"""Files that registries have without a registration, and that Python packages contain."""
_ENDS: Final = frozenset("{};")


class _MessageScope(NamedTuple):
    path: Path
    name: str
    messages: list[int]  # the number of messages so far, as a list of one item


def reader(schema: Schema, message: Any) -> Callable[[bytes], Any]:  # noqa: ANN401
    """Return a decoder for messages of the class `message`, which raises an error for other types.

    Protobuf itself would misread a message of another type without an error.
    """
    try:
        names = message_names(schema.text)
    except Exception as error:
        raise unusable(schema, error) from error
    expected, parse = message.DESCRIPTOR.full_name, message.FromString

    def read(data: bytes) -> Any:  # noqa: ANN401
        path, start = message_path(data)
        if names.get(path) != expected:
            actual = names.get(path, f"no message {'.'.join(map(str, path))}")
            raise WrongSchema(schema.id, f"expected a message {expected}, got {actual}")
        return parse(data[start:])

    return read


def dict_reader(schema: Schema) -> Callable[[bytes], dict[str, Any]]:
    """Return a decoder of all message types in a schema. It needs no generated classes.

    A message becomes a dict with Protobuf's JSON representation of its fields. Raise WrongSchema if
    the registry returned the text of a .proto file instead of a descriptor.
    """
    try:
        classes = _message_classes(schema)
    except Exception as error:
        raise unusable(schema, error) from error
    to_dict = package("google.protobuf.json_format", "Protobuf").MessageToDict

    def read(data: bytes) -> dict[str, Any]:
        path, start = message_path(data)
        if (message := classes.get(path)) is None:
            raise WrongSchema(schema.id, f"it has no message {'.'.join(map(str, path))}")
        fields: dict[str, Any] = to_dict(
            message.FromString(data[start:]),
            preserving_proto_field_name=True,
            descriptor_pool=message.DESCRIPTOR.file.pool,
        )
        return fields

    return read


def _message_classes(schema: Schema) -> dict[Path, Any]:
    """Return a class for each message type in a schema.

    The key is the path of the type: its index in the file, or in the message type around it.
    """
    package("google.protobuf.descriptor_pb2", "Protobuf")
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str, raw: bytes) -> Any:  # noqa: ANN401 - a descriptor
        file = _file(raw)
        for imported in set(file.dependency) - added:  # references were added before
            add(imported, _common_file(imported))
        file.name = name
        added.add(name)
        pool.AddSerializedFile(file.SerializeToString())
        return file

    for reference in schema.references:
        add(reference.name, base64.b64decode(reference.text, validate=True))
    raw = base64.b64decode(schema.text, validate=True)
    file = add(_file(raw).name, raw)
    return {
        path: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for path, name in _names_of_file(file)
    }


def _common_file(name: str) -> bytes:
    """Return the descriptor of a common .proto file, such as google/protobuf/timestamp.proto.

    Registries do not store such files, and Python packages contain them. Raise LookupError for
    another file.
    """
    if _COMMON.fullmatch(name) is None:  # a registry must not choose modules to import
        raise LookupError(f"it imports {name}, which is not among its references")
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    raw: bytes = module.DESCRIPTOR.serialized_pb
    return raw


def message_path(data: bytes) -> tuple[Path, int]:
    """Return the path of a message's type in its schema, and the index of the message itself."""
    if data[START : START + 1] == b"\0":
        return _FIRST, START + 1
    depth, position = _number(data, START)
    if not 0 < depth <= _DEEPEST:
        raise NotFramed(f"a message path of length {depth} is not valid")
    path = []
    for _ in range(depth):
        index, position = _number(data, position)
        path.append(index)
    return tuple(path), position


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return the zigzag varint at an index, and the index after it."""
    value = shift = 0
    while shift < 35:
        if position >= len(data):
            break
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise NotFramed("the path of the message type is not a valid varint")


def index_path(descriptor: Any) -> bytes:  # noqa: ANN401 - of a message
    """Return the encoded path of a message type in its file.

    In the wire format of schema registries, the path precedes the message.
    """
    names = message_names(base64.b64encode(descriptor.file.serialized_pb).decode())
    path = next(path for path, name in names.items() if name == descriptor.full_name)
    if path == _FIRST:
        return b"\0"
    return b"".join(map(_varint, (len(path), *path)))


def _varint(value: int) -> bytes:
    """Return a number that is not negative as a zigzag varint."""
    value <<= 1
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def message_names(schema: str) -> dict[Path, str]:
    """Return the full name of each message type in a schema, by its path.

    A schema is the text of a .proto file, or a descriptor in base64. Confluent's Python client
    registers descriptors, which some registries convert to text.
    """
    try:
        raw = base64.b64decode(schema, validate=True)
    except ValueError:
        return names_in_text(schema)
    return dict(_names_of_file(_file(raw)))


def _file(raw: bytes) -> Any:  # noqa: ANN401 - a FileDescriptorProto
    return package("google.protobuf.descriptor_pb2", "Protobuf").FileDescriptorProto.FromString(raw)


def _names_of_file(file: Any) -> Iterator[tuple[Path, str]]:  # noqa: ANN401
    start = f"{file.package}." if file.package else ""
    yield from _names_within(file.message_type, (), start)


def _names_within(messages: Iterable[Any], path: Path, start: str) -> Iterator[tuple[Path, str]]:
    for index, message in enumerate(messages):
        message_path, name = (*path, index), f"{start}{message.name}"
        yield message_path, name
        yield from _names_within(message.nested_type, message_path, f"{name}.")


def names_in_text(proto: str) -> dict[Path, str]:
    """Return the full name of each message type in the text of a .proto file, by its path."""
    names: dict[Path, str] = {}
    start = ""
    scopes: list[_MessageScope | None] = [_MessageScope((), "", [0])]
    words: list[str] = []  # of the current statement
    for piece in _PIECES.findall(proto):
        if piece[0] in "/\"'":
            continue
        if piece == "{":
            opened = _opened(scopes[-1], words)
            scopes.append(opened)
            if opened is not None:
                names[opened.path] = f"{start}{opened.name}"
        elif piece == "}" and len(scopes) > 1:
            scopes.pop()
        elif piece == ";" and words[:1] == ["package"]:
            start = f"{words[-1]}."
        words = [] if piece in _ENDS else [*words, piece]
    return names


def _opened(outer: _MessageScope | None, words: list[str]) -> _MessageScope | None:
    """Return the message type whose braces open after `words`. Return None for any other braces.

    `outer` is the enclosing message type. The braces of a oneof belong to that type.
    """
    if outer is None:
        return None
    if words[:1] == ["oneof"]:
        return outer if outer.path else None
    if words[-2:-1] == ["message"]:
        name = words[-1]
    elif words[-3:-2] == ["group"]:  # proto2: a field that defines its own message
        name = words[-2]
    else:
        return None
    index = outer.messages[0]
    outer.messages[0] += 1
    return _MessageScope((*outer.path, index), f"{outer.name}.{name}".lstrip("."), [0])
