"""Protobuf: which message of a schema the bytes are, and whether it is the one that is wanted."""

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from asyncconsumer.errors import NotFramed, WrongSchema
from asyncconsumer.serdes.models import package
from asyncconsumer.serdes.schemas import Schema
from asyncconsumer.serdes.wire_format import START, unusable

Path: TypeAlias = tuple[int, ...]
"""Which message of a file, and which of those within that one, and so on."""

_FIRST: Final = (0,)
_DEEPEST: Final = 32
_PIECES: Final = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | [\w.]+ | [{};]""",
    re.VERBOSE | re.DOTALL,
)
_ENDS: Final = frozenset("{};")


class _Scope(NamedTuple):
    path: Path
    name: str
    within: list[int]  # how many messages were seen so far, in a list of one


def reader(schema: Schema, message: Any) -> Callable[[bytes], Any]:  # noqa: ANN401
    """What reads this kind of message, and refuses any other: protobuf itself would misread it."""
    try:
        names = message_names(schema.text)
    except Exception as error:
        raise unusable(schema, error) from error
    wanted, parse = message.DESCRIPTOR.full_name, message.FromString

    def read(data: bytes) -> Any:  # noqa: ANN401
        path, start = message_path(data)
        if names.get(path) != wanted:
            found = names.get(path, f"no message {'.'.join(map(str, path))}")
            raise WrongSchema(schema.id, f"the record is {found}, and {wanted} is wanted")
        return parse(data[start:])

    return read


def message_path(data: bytes) -> tuple[Path, int]:
    """Which message it is, and where its bytes begin."""
    if data[START : START + 1] == b"\0":
        return _FIRST, START + 1
    depth, at = _number(data, START)
    if not 0 < depth <= _DEEPEST:
        raise NotFramed(f"{depth} is no depth of a message in its schema")
    path = []
    for _ in range(depth):
        index, at = _number(data, at)
        path.append(index)
    return tuple(path), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A varint, zigzag, and where the next one begins."""
    value = shift = 0
    while shift < 35:
        if at >= len(data):
            break
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise NotFramed("the bytes do not tell which message of the schema it is")


def message_names(schema: str) -> dict[Path, str]:
    """The full name of each message of a schema, by its place there.

    A schema is a text as people write it, or a descriptor in base 64, as confluent's Python writes
    it: registries differ in what they make of that.
    """
    try:
        raw = base64.b64decode(schema, validate=True)
    except ValueError:
        return names_in_text(schema)
    file = package("google.protobuf.descriptor_pb2", "Protobuf").FileDescriptorProto.FromString(raw)
    start = f"{file.package}." if file.package else ""
    return dict(_names_within(file.message_type, (), start))


def _names_within(messages: Iterable[Any], path: Path, start: str) -> Iterator[tuple[Path, str]]:
    for index, message in enumerate(messages):
        here, name = (*path, index), f"{start}{message.name}"
        yield here, name
        yield from _names_within(message.nested_type, here, f"{name}.")


def names_in_text(proto: str) -> dict[Path, str]:
    """The same, of a text."""
    names: dict[Path, str] = {}
    start = ""
    scopes: list[_Scope | None] = [_Scope((), "", [0])]
    words: list[str] = []  # of the statement so far
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


def _opened(around: _Scope | None, words: list[str]) -> _Scope | None:
    """The message whose braces open here; None for anything else that has braces."""
    if around is None:
        return None
    if words[:1] == ["oneof"]:
        return around if around.path else None
    if words[-2:-1] == ["message"]:
        name = words[-1]
    elif words[-3:-2] == ["group"]:  # of the older syntax: a field, and a message of its own
        name = words[-2]
    else:
        return None
    index = around.within[0]
    around.within[0] += 1
    return _Scope((*around.path, index), f"{around.name}.{name}".lstrip("."), [0])
