"""The arguments of a handler, chosen by the names and annotations of its parameters."""

import enum
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.markers import Header, Key, State, Value
from asyncconsumer.records.decoding import PartReader, Record
from asyncconsumer.records.message import Part
from asyncconsumer.records.record import Headers
from asyncconsumer.serdes import Deserializer, make_deserializer
from asyncconsumer.serdes.models import without_none
from asyncconsumer.streams.messages import Message

_OF_A_RECORD: Final = ("topic", "partition", "offset", "timestamp")  # never the value
_SUPPORTED: Final = "Use Depends, State, Header, Key, Value or a deserializer"
_as_it_is: Final = PartReader("record")
_PLAIN_JSON: Final = (dict, list, dict[str, Any], list[Any], Any)  # read with the standard library


class Parameter(enum.Enum):
    """The reason why the argument of a handler's parameter is the value of the record."""

    EXPLICITLY = enum.auto()  # by `Value`, or a Deserializer
    BY_DEFAULT = enum.auto()  # no marker, and no rule gives it another argument


class Inject(enum.Enum):
    """An argument that is an object of the handler call, not a part of the record."""

    CONTEXT = enum.auto()


class RecordPart(NamedTuple):
    """The part of a record that an argument is read from.

    `kind` is the type in the parameter's annotation. `deserializer` is the object that the
    annotation names, or None. For a header, `name` is its name, and `required` says whether every
    record must have it.
    """

    part: Literal["key", "value", "header"]
    kind: Any
    deserializer: Deserializer[Any] | None = None
    name: str = ""
    required: bool = True


class Argument(NamedTuple):
    """An argument of a handler, and the function `read` that returns it for a record.

    If `waits` is true, `read` may return a coroutine. If `inject` is set, the argument is not read
    from the record. If `keyword` is set, the argument is passed by that name.
    """

    read: Callable[[Record], Any]
    waits: bool = False
    value: Parameter | None = None  # None if the argument is not the value
    inject: "Dependency | State | Inject | None" = None
    keyword: str | None = None
    source: RecordPart | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Dependency:
    """A function or class whose result is an argument of a handler. It has arguments of its own."""

    function: Callable[..., Any]
    arguments: Sequence[Argument]
    use_cache: bool

    @property
    def kind(self) -> Callable[..., Any]:
        """The function to inspect, to find out whether the dependency is a generator or async.

        For an object with ``__call__``, it is that method.
        """
        function = self.function
        plain = inspect.isroutine(function) or isinstance(function, type | partial)
        return function if plain else function.__call__  # type: ignore[operator]

    def with_arguments(self, arguments: Sequence[Argument]) -> "Dependency":
        """Return this dependency with `arguments` in place of its own."""
        return replace(self, arguments=arguments)


def name_of(function: Callable[..., Any]) -> str:
    """Return the qualified name of a function. A `partial` has that of its wrapped function."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def arguments_of(name: str, function: Callable[..., Any], *, batch: bool) -> list[Argument]:
    """Return the arguments of a handler in order. Raise ConfigError for unsupported parameters."""
    place = f"handler {name}"
    parameters = _parameters(place, function)
    arguments = _arguments(place, parameters, batch=batch)
    if not arguments:
        raise ConfigError(
            f"{place}: it has no parameter without a default, and needs one for the value or the "
            "record"
        )
    return arguments


def dependency_of(
    place: str,
    function: Callable[..., Any],
    *,
    use_cache: bool,
    batch: bool,
    within: tuple[object, ...] = (),
) -> Dependency:
    """Return a dependency on `function`, with the arguments that `function` needs.

    `place` is the start of error messages. `within` has the dependencies that need this one. Raise
    ConfigError for a cycle or an unsupported parameter.
    """
    if not callable(function):
        raise ConfigError(f"{place}: the dependency {function!r} is not a function or class")
    name = name_of(function)
    place = f"{place}, dependency {name}"
    if function in within:
        raise ConfigError(f"{place}: it depends on itself. Remove the cycle")
    parameters = _parameters(place, function)
    arguments = _arguments(place, parameters, batch=batch, within=(*within, function))
    for parameter, made in zip(_passed(parameters), arguments, strict=True):
        if made.value is Parameter.BY_DEFAULT:
            raise ConfigError(
                f"{place}, parameter {parameter.name!r}: a dependency gets the value only if it is "
                "annotated as Annotated[..., Value]. Otherwise annotate it with Depends, Context, "
                "State, Record, Key or Header"
            )
    return Dependency(function, arguments, use_cache)


def _parameters(place: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:  # also works for partials, bound methods, callable objects and decorated functions
        return [*inspect.signature(function, eval_str=True).parameters.values()]
    except (NameError, TypeError, ValueError, SyntaxError, AttributeError) as error:
        raise ConfigError(f"{place}: its annotations cannot be read: {error}") from error


def _passed(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters that get an argument. The others keep their default values.

    A parameter gets an argument if it has no default value, or a marker that chooses one.
    """
    return [
        parameter
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty or _injection(parameter) is not None
    ]


def _arguments(
    place: str,
    parameters: Sequence[inspect.Parameter],
    *,
    batch: bool,
    within: tuple[object, ...] = (),
) -> list[Argument]:
    arguments = []
    skipped = False
    passed = _passed(parameters)
    for parameter in parameters:
        parameter_place = f"{place}, parameter {parameter.name!r}"
        _check_markers(parameter_place, parameter, batch=batch)
        if parameter not in passed:
            skipped = True
            continue
        made = _reader(parameter_place, parameter, batch=batch, within=within)
        by_name = skipped or parameter.kind is parameter.KEYWORD_ONLY
        arguments.append(made._replace(keyword=parameter.name) if by_name else made)
    _check_values(place, [parameter.name for parameter in passed], arguments)
    return arguments


def _injection(parameter: inspect.Parameter) -> object:
    """Return the marker or class that chooses the argument of a parameter, or None.

    None means that the argument is the record, its value, its key or all of its headers.
    """
    kind = getattr(parameter.annotation, "__value__", parameter.annotation)
    if _is_depends(parameter.default):
        return parameter.default
    if kind in (Context, State):
        return kind
    markers = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    if Value in markers:
        return None
    chosen = [marker for marker in markers if _is_injection(marker)]
    return chosen[0] if chosen else None


def _is_depends(marker: object) -> bool:
    """Return whether a marker is `Depends`, of this package or of FastAPI.

    FastAPI need not be installed.
    """
    return hasattr(marker, "dependency") and hasattr(marker, "use_cache")


def _is_injection(marker: object) -> bool:
    return marker is State or isinstance(marker, State | Header) or _is_depends(marker)


def _check_markers(place: str, parameter: inspect.Parameter, *, batch: bool) -> None:
    """Raise ConfigError if the markers of a parameter are unknown, contradictory or misplaced."""
    default: object = parameter.default
    if hasattr(default, "dependency") and not _is_depends(default):
        raise ConfigError(f"{place}: {default!r} is not supported. {_SUPPORTED}")
    for markers in _annotated(parameter.annotation, batch=batch):
        known = [marker for marker in markers if _is_known_marker(marker)]
        if not known:
            shown = ", ".join(map(repr, markers))
            raise ConfigError(
                f"{place}: {shown} is not supported. {_SUPPORTED}. If the parameter is the "
                "value, annotate it as Annotated[..., Value]"
            )
        choices = [marker for marker in known if marker is Key or _is_injection(marker)]
        if len(choices) > 1 and Value not in known:
            shown = " and ".join(map(repr, choices))
            raise ConfigError(f"{place}: {shown} choose different arguments. Keep one of them")
        nested = parameter.annotation is not parameter.empty and not _injection(parameter)
        if nested and Value not in known and any(map(_is_injection, known)):
            raise ConfigError(
                f"{place}: {known[0]!r} is inside of another type. Put it around the whole type: "
                "Annotated[..., Depends(...)]"
            )


def _is_known_marker(marker: object) -> bool:
    if isinstance(marker, Deserializer) or _is_injection(marker):
        return True
    return marker is Key or marker is Value


def _annotated(kind: Any, *, batch: bool) -> Iterator[Sequence[object]]:  # noqa: ANN401
    """Yield the markers of each ``Annotated`` in a type annotation.

    This includes markers in a union, in an alias, and in the list type of a batch handler.
    """
    kind = getattr(kind, "__value__", kind)  # an alias, `type Name = ...`
    if get_origin(kind) is Annotated:
        kind, *markers = get_args(kind)
        yield markers
        if any(map(_is_known_marker, markers)):
            return
    within = (Union, types.UnionType, list) if batch else (Union, types.UnionType)
    if get_origin(kind) in within:
        for inner in get_args(kind):
            yield from _annotated(inner, batch=False)


def _check_values(place: str, names: Sequence[str], arguments: Sequence[Argument]) -> None:
    """Raise ConfigError if several parameters would get the value and not all have a marker."""
    values = [
        (parameter, made.value)
        for parameter, made in zip(names, arguments, strict=True)
        if made.value
    ]
    doubtful = [parameter for parameter, meant in values if meant is Parameter.BY_DEFAULT]
    if len(values) > 1 and doubtful:
        others = [parameter for parameter, _ in values if parameter != doubtful[-1]]
        raise ConfigError(
            f"{place}: {doubtful[-1]!r} and {others[0]!r} would both get the value. "
            "Remove one, or annotate them: Record, Annotated[..., Key] or Annotated[..., Value]"
        )


def _reader(
    place: str, parameter: inspect.Parameter, *, batch: bool, within: tuple[object, ...]
) -> Argument:
    """Return the argument for a parameter. `place` is the start of error messages."""
    marker: Any = _injection(parameter)
    if marker is None:
        return _of_record(place, parameter, batch=batch)
    kind = parameter.annotation
    if isinstance(marker, Header):
        kind, _ = _split(_of_list(place, kind) if batch else kind)
        required = parameter.default is parameter.empty and without_none(kind) is kind
        source = RecordPart("header", kind, name=marker.name, required=required)
        try:
            return Argument(marker.reader(kind, parameter.default), source=source)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from error
    if marker is Context:
        return Argument(_as_it_is, inject=Inject.CONTEXT)
    if not _is_depends(marker):
        return Argument(_as_it_is, inject=State() if marker is State else marker)
    function = _split(kind)[0] if marker.dependency is None else marker.dependency
    made = dependency_of(place, function, use_cache=marker.use_cache, batch=batch, within=within)
    return Argument(_as_it_is, inject=made)


def _split(kind: Any) -> tuple[Any, list[object]]:  # noqa: ANN401
    """Return the type and the markers in an annotation.

    ``Key`` alone means ``Annotated[bytes, Key]``.
    """
    kind = getattr(kind, "__value__", kind)  # an alias, `type Name = ...`
    if get_origin(kind) is Annotated:
        kind, *markers = get_args(kind)
        return kind, markers
    return (None, [Key]) if kind is Key else (kind, [])


def _of_record(place: str, parameter: inspect.Parameter, *, batch: bool) -> Argument:
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        raise ConfigError(
            f"{place}: only positional parameters and parameters with a default are supported"
        )
    kind: Any = None if parameter.annotation is parameter.empty else parameter.annotation
    if parameter.name == "self" and kind is None:
        raise ConfigError(
            f"{place}: the method is not bound to an object. "
            "Declare the bound method: app.handler(...)(obj.run)"
        )
    if batch:
        kind = _of_list(place, kind)
    kind, markers = _split(kind)
    if kind is Record or get_origin(kind) is Message or kind is Message:
        return Argument(_as_it_is)
    deserializer = next((marker for marker in markers if isinstance(marker, Deserializer)), kind)
    is_key = Key in markers or (Value not in markers and parameter.name == "key")
    source = RecordPart(
        "key" if is_key else "value", kind, None if deserializer is kind else deserializer
    )
    if is_key:
        return _part(place, deserializer, "key")._replace(source=source)
    if kind == Headers or (parameter.name == "headers" and not markers):
        return _headers_as(place, kind)
    if kind is None and parameter.name == "record":
        return Argument(_as_it_is)
    if parameter.name in _OF_A_RECORD and not markers:
        raise ConfigError(
            f"{place}: it would get the value. For the {parameter.name} of the record take the "
            "Record. If the value is meant, annotate it as Annotated[..., Value]"
        )
    explicit = Value in markers or deserializer is not kind
    argument = _part(place, deserializer, "value")
    meant = Parameter.EXPLICITLY if explicit else Parameter.BY_DEFAULT
    return argument._replace(value=meant, source=source)


def _of_list(place: str, kind: Any) -> Any:  # noqa: ANN401
    """Return the item type in the `list[...]` annotation of a batch handler, or None without one.

    Raise ConfigError for the annotation of another type.
    """
    if kind is None or kind is list:
        return None
    if get_origin(kind) is Annotated:
        inner, *markers = get_args(kind)
        return Annotated[_of_list(place, inner) or bytes, *markers]
    if get_origin(kind) is not list:
        raise ConfigError(f"{place}: a handler with `batch` gets lists: annotate it as list[...]")
    return get_args(kind)[0]


def _headers_as(place: str, kind: Any) -> Argument:  # noqa: ANN401
    """Return the argument for a parameter `headers` of the annotated type.

    It is a list of pairs, because names may repeat, or a dict with the last value of each name.
    """
    if kind in (dict, dict[str, bytes], dict[str, bytes | None]):
        return Argument(lambda record: dict(record.headers))
    if kind is None or kind is tuple or get_origin(kind) is tuple:
        return Argument(lambda record: record.headers)
    raise ConfigError(
        f"{place}: headers are a tuple of pairs. For a dict annotate it as dict[str, bytes]"
    )


def _part(place: str, kind: Any, part: Part) -> Argument:  # noqa: ANN401
    try:
        plain = not isinstance(kind, Deserializer) and kind in _PLAIN_JSON
        made = make_deserializer("json" if plain else kind)
        return Argument(made.reader(part), made.waits)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
