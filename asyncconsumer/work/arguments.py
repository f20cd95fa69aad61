"""What a handler is called with, by the names and annotations of its parameters."""

import inspect
import json
import types
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

from asyncconsumer.errors import ConfigError, DeserializationFailed
from asyncconsumer.streams.messages import Message
from asyncconsumer.wire.accel import Record
from asyncconsumer.wire.record import Headers

Read: TypeAlias = Callable[[Record], Any]
"""Makes one argument of a record."""


class Key:
    """``Annotated[str, Key]``: the key, made into that type; as does the name `key`."""


class Value:
    """``Annotated[Order, Value]``: the value, whatever the parameter is called."""


def readers(name: str, function: Callable[..., Any], *, batch: bool) -> list[Read]:
    """What makes each argument of a handler, in their order. Raises for what nobody understands."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise ConfigError(f"handler {name}: its annotations cannot be read: {error}") from error
    found = [
        _reader(f"handler {name}, parameter {one.name!r}", one, hints.get(one.name), batch=batch)
        for one in parameters
        if one.default is inspect.Parameter.empty
    ]
    if not found:
        raise ConfigError(
            f"handler {name} takes nothing: give it a parameter for the value, or the record"
        )
    return found


def _reader(where: str, parameter: inspect.Parameter, kind: Any, *, batch: bool) -> Read:  # noqa: ANN401
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        raise ConfigError(f"{where}: only plain parameters can be given, or those with a default")
    if batch:
        kind = _of_list(where, kind)
    wanted: list[object] = []
    if get_origin(kind) is Annotated:
        kind, *wanted = get_args(kind)
    if kind is Record or get_origin(kind) is Message or kind is Message:
        return _as_it_is
    if Key in wanted or (not wanted and parameter.name == "key"):
        return _part(where, kind, "key")
    if kind == Headers or (parameter.name == "headers" and not wanted):
        return _headers
    if kind is None and parameter.name == "record":
        return _as_it_is
    return _part(where, kind, "value")


def _of_list(where: str, kind: Any) -> Any:  # noqa: ANN401
    """Batch handlers are given a list of what others are given one of."""
    if kind is None or kind is list:
        return None
    if get_origin(kind) is Annotated:
        inner, *wanted = get_args(kind)
        return Annotated[_of_list(where, inner) or bytes, *wanted]
    if get_origin(kind) is not list:
        raise ConfigError(f"{where}: with a batch it is a list, so annotate it as list[...]")
    return get_args(kind)[0]


def _as_it_is(record: Record) -> Record:
    return record


def _headers(record: Record) -> Headers:
    return record.headers


def _part(where: str, kind: Any, part: str) -> Read:  # noqa: ANN401
    try:
        return _deserializer_of(kind, part)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


# --- until there are deserializers for more types ------------------------------------------------

_JSON: Final = (dict, list, Any)


def _deserializer_of(kind: Any, part: str) -> Read:  # noqa: ANN401
    """What makes the key or value of a record into that type. None stays None."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next((each for each in get_args(kind) if each is not types.NoneType), None)
    if kind is None or kind is bytes:
        return (lambda record: record.key) if part == "key" else (lambda record: record.value)
    if kind is str:
        return _guarded(bytes.decode, part)
    if kind in _JSON or get_origin(kind) in (dict, list):
        return _guarded(json.loads, part)
    if hasattr(kind, "model_validate_json"):
        return _guarded(kind.model_validate_json, part)
    raise ConfigError(f"{kind!r} cannot be made of bytes: take bytes, str, dict, or a model")


def _guarded(make: Callable[[bytes], Any], part: str) -> Read:
    def read(record: Record) -> Any:  # noqa: ANN401
        data = record.key if part == "key" else record.value
        if data is None:
            return None
        try:
            return make(data)
        except Exception as error:
            place = f"{record.topic}[{record.partition}]@{record.offset}"
            raise DeserializationFailed(part, record, place, repr(error)) from error

    return read
