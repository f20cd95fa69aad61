"""What a handler is called with, by the names and annotations of its parameters."""

import enum
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

from asyncconsumer.errors import ConfigError
from asyncconsumer.records.decoding import Record
from asyncconsumer.records.record import Headers
from asyncconsumer.serdes import Deserializer, make_deserializer
from asyncconsumer.serdes.types import Part
from asyncconsumer.streams.messages import Message

_OF_A_RECORD: Final = ("topic", "partition", "offset", "timestamp")  # and hardly names for a value
_NO_INJECTION: Final = "Dependencies are not injected: open them before, e.g. in a lifespan"
_PLAIN_JSON: Final = (dict, list, dict[str, Any], list[Any], Any)  # which need no package


class Parameter(enum.Enum):
    """How a parameter says that it is for the value."""

    EXPLICITLY = enum.auto()  # by `Value`, or a Deserializer
    BY_DEFAULT = enum.auto()  # it is for nothing else


class Argument(NamedTuple):
    """One argument of a handler: what makes it of a record, and whether that may be awaited."""

    read: Callable[[Record], Any]
    waits: bool = False
    value: Parameter | None = None  # how we know that it is the value, if it is


class Key:
    """``Annotated[str, Key]``: the key, made into that type; as does the name `key`."""


class Value:
    """``Annotated[Order, Value]``: the value, whatever the parameter is called.

    A `Deserializer` may stand beside either: ``Annotated[Order, registry.avro(Order)]``.
    """


def arguments_of(name: str, function: Callable[..., Any], *, batch: bool) -> list[Argument]:
    """What makes each argument of a handler, in their order. Raises for what nobody understands."""
    try:  # also of a partial function, a bound method, an object, what a decorator has wrapped
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError, SyntaxError, AttributeError) as error:
        raise ConfigError(f"handler {name}: its annotations cannot be read: {error}") from error
    for one in parameters:
        _check_markers(f"handler {name}, parameter {one.name!r}", one, batch=batch)
    given = [one for one in parameters if one.default is inspect.Parameter.empty]
    found = [_reader(f"handler {name}, parameter {one.name!r}", one, batch=batch) for one in given]
    _check_values(name, [one.name for one in given], found)
    if not found:
        raise ConfigError(
            f"handler {name} takes nothing: give it a parameter for the value, or the record"
        )
    return found


def _check_markers(where: str, parameter: inspect.Parameter, *, batch: bool) -> None:
    """Refuse what other frameworks understand: nobody here would inject it."""
    if hasattr(parameter.default, "dependency"):
        raise ConfigError(f"{where}: {_NO_INJECTION}")
    for markers in _annotated(parameter.annotation, batch=batch):
        if not any(map(_is_ours, markers)):
            shown = ", ".join(map(repr, markers))
            raise ConfigError(
                f"{where}: nothing is known of {shown}. {_NO_INJECTION}. If the value is meant, "
                "annotate it as Annotated[..., Value]"
            )


def _is_ours(marker: object) -> bool:
    return marker is Key or marker is Value or isinstance(marker, Deserializer)


def _annotated(kind: Any, *, batch: bool) -> Iterator[Sequence[object]]:  # noqa: ANN401
    """What stands beside a type, also in a union or an alias; with a batch, also in its list."""
    kind = getattr(kind, "__value__", kind)  # of `type Name = ...`
    if get_origin(kind) is Annotated:
        kind, *markers = get_args(kind)
        yield markers
        if any(map(_is_ours, markers)):
            return
    within = (Union, types.UnionType, list) if batch else (Union, types.UnionType)
    if get_origin(kind) in within:
        for one in get_args(kind):
            yield from _annotated(one, batch=False)


def _check_values(name: str, names: Sequence[str], found: Sequence[Argument]) -> None:
    """Refuse a second parameter that is for the value only because it is for nothing else."""
    values = [(one, made.value) for one, made in zip(names, found, strict=True) if made.value]
    doubtful = [one for one, meant in values if meant is Parameter.BY_DEFAULT]
    if len(values) > 1 and doubtful:
        others = [one for one, _ in values if one != doubtful[-1]]
        raise ConfigError(
            f"handler {name}: {doubtful[-1]!r} would be given the value, and so would "
            f"{others[0]!r}. Leave one out, or say what each is for: a Record, "
            "Annotated[..., Key] or Annotated[..., Value]"
        )


def _reader(where: str, parameter: inspect.Parameter, *, batch: bool) -> Argument:
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        raise ConfigError(f"{where}: only plain parameters can be given, or those with a default")
    kind: Any = None if parameter.annotation is parameter.empty else parameter.annotation
    if parameter.name == "self" and kind is None:
        raise ConfigError(f"{where}: of which object? Declare its method: app.handler(...)(it.run)")
    if batch:
        kind = _of_list(where, kind)
    wanted: list[object] = []
    kind = getattr(kind, "__value__", kind)
    if get_origin(kind) is Annotated:
        kind, *wanted = get_args(kind)
    if kind is Record or get_origin(kind) is Message or kind is Message:
        return Argument(_as_it_is)
    how = next((one for one in wanted if isinstance(one, Deserializer)), kind)
    if Key in wanted or (Value not in wanted and parameter.name == "key"):
        return _part(where, how, "key")
    if kind == Headers or (parameter.name == "headers" and not wanted):
        return _headers_as(where, kind)
    if kind is None and parameter.name == "record":
        return Argument(_as_it_is)
    if parameter.name in _OF_A_RECORD and not wanted:
        raise ConfigError(
            f"{where}: it would be given the value. Take the Record, which has its "
            f"{parameter.name}; or, if the value is meant, annotate it as Annotated[..., Value]"
        )
    explicit = Value in wanted or how is not kind
    made = _part(where, how, "value")
    return made._replace(value=Parameter.EXPLICITLY if explicit else Parameter.BY_DEFAULT)


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


def _headers_as(where: str, kind: Any) -> Argument:  # noqa: ANN401
    """As pairs, for a name may be there twice; or as a dict, of the last ones."""
    if kind in (dict, dict[str, bytes], dict[str, bytes | None]):
        return Argument(lambda record: dict(record.headers))
    if kind is None or kind is tuple or get_origin(kind) is tuple:
        return Argument(lambda record: record.headers)
    raise ConfigError(f"{where}: headers are pairs; for a dict annotate it as dict[str, bytes]")


def _part(where: str, kind: Any, part: Part) -> Argument:  # noqa: ANN401
    try:
        plain = not isinstance(kind, Deserializer) and kind in _PLAIN_JSON
        made = make_deserializer("json" if plain else kind)
        return Argument(made.reader(part), made.waits)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
