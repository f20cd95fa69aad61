"""Conversion of the forms that users may give into a `Deserializer`."""

import inspect
import json
import types
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, overload
from uuid import UUID

from asyncconsumer.errors import ConfigError, WrongBytes
from asyncconsumer.serdes.models import model_of, named
from asyncconsumer.serdes.types import Deserializer, Deserializes, Loads, Made, T

Deserializable: TypeAlias = (
    type[T] | Callable[[bytes], Made[T]] | Deserializer[T] | Deserializes[T] | Loads[T]
)
"""What may be given where bytes are to become something; `make_deserializer` says what each means.

Type checkers infer T of all of these but ``async`` functions: annotate the consumer that takes one
(``consumer: Consumer[bytes, Order] = ...``) or give ``make_deserializer(function)``.
"""

_JSON_MODULES: Final = frozenset({"json", "orjson", "simplejson", "ujson", "rapidjson"})


def _json_that_is(kind: type) -> Deserializer[Any]:
    """Return a deserializer of JSON that checks only the outermost type."""

    def read(data: bytes) -> object:
        if not isinstance(made := json.loads(data), kind):
            raise WrongBytes(f"JSON of {type(made).__name__}, and {kind.__name__} is wanted")
        return made

    return Deserializer(read, kind.__name__)


_AS_IT_IS: Final[Deserializer[bytes]] = Deserializer(bytes, "bytes", as_it_is=True)
_TEXT: Final[Deserializer[str]] = Deserializer(bytes.decode, "str")
_SEVERAL_WAYS: Final[dict[object, str]] = {
    bool: "boolean",
    int: "int64 (or int32, int16)",
    float: "float64 (or float32)",
    UUID: "uuid",
}
_PLAIN: Final[dict[object, Deserializer[Any]]] = {
    None: _AS_IT_IS,
    bytes: _AS_IT_IS,
    str: _TEXT,
    dict: _json_that_is(dict),
    list: _json_that_is(list),
    Any: Deserializer(json.loads, "json"),
}


@overload
def make_deserializer(wanted: None) -> Deserializer[bytes]: ...
@overload
def make_deserializer(wanted: Literal["json"]) -> Deserializer[Any]: ...
@overload
def make_deserializer(wanted: Callable[[bytes], Coroutine[Any, Any, T]]) -> Deserializer[T]: ...
@overload
def make_deserializer(wanted: Deserializable[T]) -> Deserializer[T]: ...
def make_deserializer(wanted: Any) -> Deserializer[Any]:
    """Return the deserializer for one of these forms.

    - None or ``bytes``: they stay bytes. ``str``: they are UTF-8.
    - ``"json"``, ``Any``, or the module `json`: whatever the text says; ``dict``, ``list``: that.
    - a pydantic model, a msgspec struct, a dataclass, a TypedDict, ``list[Order]``: JSON, which the
      package makes into that type.
    - a function of bytes, also an ``async`` one; an object with ``deserialize(data, place)``.
    - a `Deserializer`, such as those of this package and of a `SchemaRegistry`.
    """
    if isinstance(wanted, Deserializer):
        return wanted
    if isinstance(wanted, types.ModuleType) or (isinstance(wanted, str) and wanted == "json"):
        return _json(wanted)
    if wanted is None or _is_type(wanted):
        return _of_type(wanted)
    if callable(method := getattr(wanted, "deserialize", None)):
        return Deserializer(method, _name(wanted), waits=True, wants_place=True)
    if callable(wanted):
        _check_arguments(wanted)
        return Deserializer(wanted, _name(wanted), waits=True)
    raise ConfigError(
        f"{wanted!r} does not say how to deserialize: give a type (bytes, str, a pydantic model, a "
        "msgspec struct, a dataclass), 'json', a function of bytes, an object with "
        "deserialize(data, place), or one of asyncconsumer.serdes"
    )


def _is_type(wanted: object) -> bool:
    """A class, or a form such as list[Order] or Order | None."""
    return isinstance(wanted, type) or get_origin(wanted) is not None


def _of_type(wanted: Any) -> Deserializer[Any]:  # noqa: ANN401
    if get_origin(wanted) in (Union, types.UnionType):  # None is never deserialized
        others = [each for each in get_args(wanted) if each is not types.NoneType]
        wanted = others[0] if others in ([bytes], [str]) else wanted
    if wanted is None or isinstance(wanted, type):
        if (plain := _PLAIN.get(wanted)) is not None:
            return plain
        if (kafkas := _SEVERAL_WAYS.get(wanted)) is not None:
            raise ConfigError(
                f"{named(wanted)} is written in more than one way. As Kafka's own serializers do: "
                f"asyncconsumer.serdes.{kafkas}; as JSON: json.loads"
            )
    model = model_of(wanted)
    return Deserializer(model.of_json, f"{named(wanted)} by {model.package}")


def _json(module: Any) -> Deserializer[Any]:  # noqa: ANN401
    if module == "json":
        return Deserializer(json.loads, "json")
    if module.__name__ not in _JSON_MODULES:
        raise ConfigError(
            f"the module {module.__name__} does not say how to deserialize: give its function"
        )
    return Deserializer(module.loads, module.__name__)


def _check_arguments(function: Callable[..., object]) -> None:
    """A function that cannot be called with bytes alone is told now, not at the first record."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some that are built in tell nothing of themselves
        return
    try:
        signature.bind(b"")
    except TypeError as error:
        raise ConfigError(
            f"{_name(function)}{signature} cannot be called with bytes alone: {error}. What wants "
            "to know the place has a method deserialize(data, place)"
        ) from None


def _name(wanted: object) -> str:
    return getattr(wanted, "__qualname__", None) or type(wanted).__qualname__
