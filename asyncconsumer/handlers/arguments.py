"""The arguments of a handler, chosen by the names and annotations of its parameters."""

import enum
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

from asyncconsumer.errors import ConfigError
from asyncconsumer.records.decoding import Record
from asyncconsumer.records.message import Part
from asyncconsumer.records.record import Headers
from asyncconsumer.serdes import Deserializer, make_deserializer
from asyncconsumer.streams.messages import Message

_OF_A_RECORD: Final = ("topic", "partition", "offset", "timestamp")  # unlikely for a value
_NO_INJECTION: Final = (
    "Dependencies are not injected: create them before the app, e.g. in a lifespan"
)
_PLAIN_JSON: Final = (dict, list, dict[str, Any], list[Any], Any)  # read with the standard library


class Parameter(enum.Enum):
    """The way in which a parameter asks for the value."""

    EXPLICITLY = enum.auto()  # by `Value`, or a Deserializer
    BY_DEFAULT = enum.auto()  # no other rule applies


class Argument(NamedTuple):
    """One argument of a handler: the function that reads it, and whether that may be async."""

    read: Callable[[Record], Any]
    waits: bool = False
    value: Parameter | None = None  # None if the argument is not the value


class Key:
    """A marker for the key, deserialized to a type: ``Annotated[str, Key]``.

    A parameter named `key` needs no marker.
    """


class Value:
    """A marker for the value, for any parameter name: ``Annotated[Order, Value]``.

    A `Deserializer` may be added to this marker or `Key`, or replace this one, as in
    ``Annotated[Order, registry.avro(Order)]``.
    """


def arguments_of(name: str, function: Callable[..., Any], *, batch: bool) -> list[Argument]:
    """Return the arguments of a handler in order. Raise ConfigError for unsupported parameters."""
    try:  # also works for partials, bound methods, callable objects and decorated functions
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError, SyntaxError, AttributeError) as error:
        raise ConfigError(f"handler {name}: its annotations cannot be read: {error}") from error
    for parameter in parameters:
        _check_markers(f"handler {name}, parameter {parameter.name!r}", parameter, batch=batch)
    required = [
        parameter for parameter in parameters if parameter.default is inspect.Parameter.empty
    ]
    arguments = [
        _reader(f"handler {name}, parameter {parameter.name!r}", parameter, batch=batch)
        for parameter in required
    ]
    _check_values(name, [parameter.name for parameter in required], arguments)
    if not arguments:
        raise ConfigError(
            f"handler {name} has no parameters: it needs one for the value or the record"
        )
    return arguments


def _check_markers(where: str, parameter: inspect.Parameter, *, batch: bool) -> None:
    """Reject the markers of other frameworks, because dependencies are not injected."""
    if hasattr(parameter.default, "dependency"):
        raise ConfigError(f"{where}: {_NO_INJECTION}")
    for markers in _annotated(parameter.annotation, batch=batch):
        if not any(map(_is_known_marker, markers)):
            shown = ", ".join(map(repr, markers))
            raise ConfigError(
                f"{where}: {shown} is not supported. {_NO_INJECTION}. If the parameter is the "
                "value, annotate it as Annotated[..., Value]"
            )


def _is_known_marker(marker: object) -> bool:
    return marker is Key or marker is Value or isinstance(marker, Deserializer)


def _annotated(kind: Any, *, batch: bool) -> Iterator[Sequence[object]]:  # noqa: ANN401
    """Yield the markers of a type, also in a union or alias, and in the list of a batch."""
    kind = getattr(kind, "__value__", kind)  # of an alias, `type Name = ...`
    if get_origin(kind) is Annotated:
        kind, *markers = get_args(kind)
        yield markers
        if any(map(_is_known_marker, markers)):
            return
    within = (Union, types.UnionType, list) if batch else (Union, types.UnionType)
    if get_origin(kind) in within:
        for inner in get_args(kind):
            yield from _annotated(inner, batch=False)


def _check_values(name: str, names: Sequence[str], arguments: Sequence[Argument]) -> None:
    """Reject a second parameter that would get the value only by default."""
    values = [
        (parameter, made.value)
        for parameter, made in zip(names, arguments, strict=True)
        if made.value
    ]
    doubtful = [parameter for parameter, meant in values if meant is Parameter.BY_DEFAULT]
    if len(values) > 1 and doubtful:
        others = [parameter for parameter, _ in values if parameter != doubtful[-1]]
        raise ConfigError(
            f"handler {name}: {doubtful[-1]!r} and {others[0]!r} would both get the value. "
            "Remove one, or annotate them: Record, Annotated[..., Key] or Annotated[..., Value]"
        )


def _reader(where: str, parameter: inspect.Parameter, *, batch: bool) -> Argument:
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        raise ConfigError(
            f"{where}: only positional parameters and parameters with a default are supported"
        )
    kind: Any = None if parameter.annotation is parameter.empty else parameter.annotation
    if parameter.name == "self" and kind is None:
        raise ConfigError(
            f"{where}: the method is not bound to an object. "
            "Declare the bound method: app.handler(...)(obj.run)"
        )
    if batch:
        kind = _of_list(where, kind)
    markers: list[object] = []
    kind = getattr(kind, "__value__", kind)
    if get_origin(kind) is Annotated:
        kind, *markers = get_args(kind)
    if kind is Record or get_origin(kind) is Message or kind is Message:
        return Argument(_as_it_is)
    how = next((marker for marker in markers if isinstance(marker, Deserializer)), kind)
    if Key in markers or (Value not in markers and parameter.name == "key"):
        return _part(where, how, "key")
    if kind == Headers or (parameter.name == "headers" and not markers):
        return _headers_as(where, kind)
    if kind is None and parameter.name == "record":
        return Argument(_as_it_is)
    if parameter.name in _OF_A_RECORD and not markers:
        raise ConfigError(
            f"{where}: it would get the value. For the {parameter.name} of the record take the "
            "Record. If the value is meant, annotate it as Annotated[..., Value]"
        )
    explicit = Value in markers or how is not kind
    made = _part(where, how, "value")
    return made._replace(value=Parameter.EXPLICITLY if explicit else Parameter.BY_DEFAULT)


def _of_list(where: str, kind: Any) -> Any:  # noqa: ANN401
    """Return the item type of a `list[...]` annotation of a batch handler."""
    if kind is None or kind is list:
        return None
    if get_origin(kind) is Annotated:
        inner, *markers = get_args(kind)
        return Annotated[_of_list(where, inner) or bytes, *markers]
    if get_origin(kind) is not list:
        raise ConfigError(f"{where}: a handler with `batch` gets lists: annotate it as list[...]")
    return get_args(kind)[0]


def _as_it_is(record: Record) -> Record:
    return record


def _headers_as(where: str, kind: Any) -> Argument:  # noqa: ANN401
    """Return headers as pairs, because names may repeat, or as a dict of the last values."""
    if kind in (dict, dict[str, bytes], dict[str, bytes | None]):
        return Argument(lambda record: dict(record.headers))
    if kind is None or kind is tuple or get_origin(kind) is tuple:
        return Argument(lambda record: record.headers)
    raise ConfigError(
        f"{where}: headers are a tuple of pairs. For a dict annotate it as dict[str, bytes]"
    )


def _part(where: str, kind: Any, part: Part) -> Argument:  # noqa: ANN401
    try:
        plain = not isinstance(kind, Deserializer) and kind in _PLAIN_JSON
        made = make_deserializer("json" if plain else kind)
        return Argument(made.reader(part), made.waits)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
