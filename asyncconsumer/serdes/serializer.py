"""Serializers of keys and values, the counterpart of deserializers."""

import dataclasses
import inspect
import json
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Annotated, Any, Final, Protocol, TypeAlias, TypeVar, Union, get_args, get_origin
from uuid import UUID

from asyncconsumer.errors import ConfigError, ConsumerError, SerializationFailed
from asyncconsumer.serdes.models import dump_of, named
from asyncconsumer.serdes.types import RecordContext

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T")

SerializedBytes: TypeAlias = Coroutine[Any, Any, bytes | None] | bytes | None
"""The bytes of a value, or a coroutine that returns them."""


class Serializes(Protocol[T_contra]):
    """A user object that serializes values. Its method may be ``async``."""

    def serialize(self, value: T_contra, place: RecordContext, /) -> SerializedBytes:
        """Return the bytes of a value."""


Serializable: TypeAlias = (
    type[T] | Callable[[T], SerializedBytes] | Serializes[T] | types.ModuleType
)
"""The forms in which a serializer can be passed. `make_serializer` documents them."""

Serializer: TypeAlias = Callable[[Any, RecordContext], bytes | Awaitable[bytes | None] | None]
"""A function of a value and its place, as `make_serializer` returns it. None stays None."""

_AMBIGUOUS: Final = (bool, int, float, UUID)
_JSON_MODULES: Final = frozenset({"json", "orjson", "simplejson", "ujson", "rapidjson"})


def make_serializer(form: Any) -> Serializer:  # noqa: ANN401 - all forms of `Serializable`
    """Return the serializer for one of these forms.

    - None: by the type of each value, as the following lines say.
    - ``bytes``: the value itself. ``str``: UTF-8 text.
    - ``"json"``, ``Any``, ``dict``, ``list`` or the module `json`: JSON.
    - A pydantic model, msgspec struct, dataclass, TypedDict or ``list[Order]``: JSON, as pydantic
      or msgspec writes it.
    - A function of the value that returns bytes, and may be ``async``.
    - An object with ``serialize(value, place)``, such as ``registry.avro(Order)``.
    - ``Annotated[Order, registry.avro(Order)]``: such an object in the metadata of a type.
    """
    if get_origin(form) is Annotated:
        form = _annotated(form)
    if form is None:
        return _by_type
    if form in _AMBIGUOUS:
        raise ConfigError(
            f"{named(form)} has more than one encoding. Pass a function that returns bytes, for "
            "example lambda value: str(value).encode()"
        )
    if isinstance(form, types.ModuleType):
        return _module(form)
    if isinstance(form, type) or get_origin(form) is not None or form in ("json", Any):
        return _of_value(_of_type(form))
    if callable(method := getattr(form, "serialize", None)):
        return _placed(method)
    if callable(form):
        return _of_value(form)
    raise ConfigError(
        f"{form!r} is not a serializer. Pass a type (bytes, str, a pydantic model, a msgspec "
        "struct, a dataclass), 'json', a function that returns bytes, or an object with "
        "serialize(value, place)"
    )


def by_annotation(kinds: Iterable[Any]) -> Serializer:
    """Return a serializer for values of several types, such as ``Annotated[Order, serializer]``.

    A value is serialized by the serializer in the annotation of its class or of a base class.
    Values of other classes are serialized by their type, for example a model as JSON.
    """
    annotated = [kind for kind in kinds if get_origin(kind) is Annotated]
    serializers: dict[type, Serializer] = {}
    for form in annotated:
        kind = get_args(form)[0]
        serializers[get_origin(kind) or kind] = make_serializer(form)
    if not serializers:
        return _by_type

    def write(value: object, place: RecordContext) -> bytes | Awaitable[bytes | None] | None:
        bases = type(value).__mro__
        chosen = next((base for base in bases if base in serializers), None)
        return (_by_type if chosen is None else serializers[chosen])(value, place)

    return write


def _annotated(form: Any) -> Any:  # noqa: ANN401
    """Return the serializer in the metadata of an annotated type, or the type without it."""
    kind, *metadata = get_args(form)
    return next((each for each in metadata if hasattr(each, "serialize")), kind)


def _of_type(form: Any) -> Callable[[Any], bytes]:  # noqa: ANN401
    if get_origin(form) in (Union, types.UnionType):  # None is never serialized
        others = [each for each in get_args(form) if each is not types.NoneType]
        form = others[0] if len(others) == 1 else form
    if form is bytes:
        return _bytes
    if form is str:
        return _text
    if form in ("json", Any, dict, list):
        return _json
    return dump_of(form)


def _module(module: types.ModuleType) -> Serializer:
    if module.__name__ not in _JSON_MODULES:
        raise ConfigError(
            f"the module {module.__name__} is not a serializer. Pass one of its functions"
        )

    def dump(value: object) -> bytes:
        text = module.dumps(value)
        return text if isinstance(text, bytes) else text.encode()

    return _of_value(dump)


def _of_value(function: Callable[[Any], Any]) -> Serializer:
    """Return a serializer that calls `function` with only the value, and checks the result.

    To be fast, it accepts a result of the type bytes without a call of another function.
    """

    def write(value: object, place: RecordContext) -> bytes | Awaitable[bytes | None] | None:
        if value is None:
            return None
        try:
            data = function(value)
        except Exception as error:
            raise _failure(error, value, place) from error
        return data if type(data) is bytes else _finished(data, value, place)

    return write


def _placed(function: Callable[[Any, RecordContext], Any]) -> Serializer:
    def write(value: object, place: RecordContext) -> bytes | Awaitable[bytes | None] | None:
        if value is None:
            return None
        try:
            data = function(value, place)
        except Exception as error:
            raise _failure(error, value, place) from error
        return _finished(data, value, place)

    return write


def _finished(
    data: object, value: object, place: RecordContext
) -> bytes | Awaitable[bytes | None] | None:
    if inspect.iscoroutine(data):
        return _waited(data, value, place)
    return _checked(data, value, place)


async def _waited(
    data: Coroutine[Any, Any, object], value: object, place: RecordContext
) -> bytes | None:
    try:
        made = await data
    except Exception as error:
        raise _failure(error, value, place) from error
    return _checked(made, value, place)


def _checked(data: object, value: object, place: RecordContext) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    reason = f"the serializer returned {type(data).__name__}, not bytes"
    raise SerializationFailed(place.part, place.topic, named(type(value)), reason)


def _failure(error: Exception, value: object, place: RecordContext) -> SerializationFailed:
    """Return the error to raise for `error`, without a text that may quote the value."""
    reason = str(error) if isinstance(error, ConsumerError) else type(error).__name__
    retriable = isinstance(error, ConsumerError) and error.retriable
    return SerializationFailed(
        place.part, place.topic, named(type(value)), reason, retriable=retriable
    )


def _bytes(value: object) -> bytes:
    if type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _NoSerializer("it is not bytes")
    return bytes(value)


def _text(value: object) -> bytes:
    if not isinstance(value, str):
        raise _NoSerializer("it is not a str")
    return value.encode()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class _NoSerializer(ConsumerError):
    """The value is not of the type that the serializer expects, or its type has no encoding."""


_DUMPS: Final[dict[type, Callable[[Any], bytes]]] = {
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    str: _text,
    dict: _json,
    list: _json,
}


def _of_any(value: object) -> bytes:
    """Serialize a value by its type."""
    kind = type(value)
    dump = _DUMPS.get(kind)
    if dump is None:
        if not _is_model(kind):
            raise _NoSerializer("its type has no obvious encoding, so pass a serializer")
        dump = _DUMPS[kind] = dump_of(kind)  # one entry for each class of the program
    return dump(value)


def _is_model(kind: type) -> bool:
    if dataclasses.is_dataclass(kind):
        return True
    for module, name in (("pydantic", "BaseModel"), ("msgspec", "Struct")):
        base = getattr(sys.modules.get(module), name, None)
        if base is not None and issubclass(kind, base):
            return True
    return False


_by_type: Final = _of_value(_of_any)
