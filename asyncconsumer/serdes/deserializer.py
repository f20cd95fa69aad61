"""The conversion of the objects that users pass as deserializers to `Deserializer` objects."""

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
"""The forms in which a deserializer can be passed. `make_deserializer` documents them.

Type checkers infer T for all forms except ``async`` functions. For these, annotate the consumer
(``consumer: Consumer[bytes, Order] = ...``) or pass ``make_deserializer(function)``.
"""

_JSON_MODULES: Final = frozenset({"json", "orjson", "simplejson", "ujson", "rapidjson"})


def _json_of(kind: type) -> Deserializer[Any]:
    """Return a deserializer of JSON to `kind` that checks only the outermost type."""

    def read(data: bytes) -> object:
        if not isinstance(made := json.loads(data), kind):
            raise WrongBytes(f"expected JSON of type {kind.__name__}, got {type(made).__name__}")
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
    dict: _json_of(dict),
    list: _json_of(list),
    Any: Deserializer(json.loads, "json"),
}


@overload
def make_deserializer(form: None) -> Deserializer[bytes]: ...
@overload
def make_deserializer(form: Literal["json"]) -> Deserializer[Any]: ...
@overload
def make_deserializer(form: Callable[[bytes], Coroutine[Any, Any, T]]) -> Deserializer[T]: ...
@overload
def make_deserializer(form: Deserializable[T]) -> Deserializer[T]: ...
def make_deserializer(form: Any) -> Deserializer[Any]:
    """Return the deserializer that `form` describes, which may be one of these:

    - None or ``bytes``: the bytes are the value.
    - ``str``: UTF-8 text.
    - ``"json"``, ``Any`` or the module `json`: JSON of any type. ``dict`` and ``list``: JSON of
      that type.
    - A pydantic model, msgspec struct, dataclass, TypedDict or ``list[Order]``: JSON that pydantic
      or msgspec converts to the type.
    - A function of bytes, which may be ``async``, or an object with ``deserialize(data, place)``.
    - A `Deserializer`, such as those of this package and of a `SchemaRegistry`.
    """
    if isinstance(form, Deserializer):
        return form
    if isinstance(form, types.ModuleType) or (isinstance(form, str) and form == "json"):
        return _json(form)
    if form is None or _is_type(form):
        return _of_type(form)
    if callable(method := getattr(form, "deserialize", None)):
        return Deserializer(method, _name(form), waits=True, wants_place=True)
    if callable(form):
        _check_arguments(form)
        return Deserializer(form, _name(form), waits=True)
    raise ConfigError(
        f"{form!r} is not a deserializer. Pass a type (bytes, str, a pydantic model, a msgspec "
        "struct, a dataclass), 'json', a function of bytes, an object with "
        "deserialize(data, place), or a deserializer of asyncconsumer.serdes"
    )


def _is_type(form: object) -> bool:
    """Return whether `form` is a class, or a type such as list[Order] or Order | None."""
    return isinstance(form, type) or get_origin(form) is not None


def _of_type(form: Any) -> Deserializer[Any]:  # noqa: ANN401
    if get_origin(form) in (Union, types.UnionType):  # None is never deserialized
        others = [each for each in get_args(form) if each is not types.NoneType]
        form = others[0] if others in ([bytes], [str]) else form
    if form is None or isinstance(form, type):
        if (plain := _PLAIN.get(form)) is not None:
            return plain
        if (kafkas := _SEVERAL_WAYS.get(form)) is not None:
            raise ConfigError(
                f"{named(form)} has more than one encoding. For that of Kafka's serializers pass "
                f"asyncconsumer.serdes.{kafkas}, for JSON pass json.loads"
            )
    model = model_of(form)
    return Deserializer(model.of_json, f"{named(form)} by {model.package}")


def _json(module: Any) -> Deserializer[Any]:  # noqa: ANN401
    if module == "json":
        return Deserializer(json.loads, "json")
    if module.__name__ not in _JSON_MODULES:
        raise ConfigError(
            f"the module {module.__name__} is not a deserializer. Pass one of its functions"
        )
    return Deserializer(module.loads, module.__name__)


def _check_arguments(function: Callable[..., object]) -> None:
    """Raise ConfigError if a function cannot be called with bytes as its only argument."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return
    try:
        signature.bind(b"")
    except TypeError as error:
        raise ConfigError(
            f"{_name(function)}{signature} cannot be called with bytes alone: {error}. To get "
            "the place, pass an object with a method deserialize(data, place)"
        ) from None


def _name(form: object) -> str:
    return getattr(form, "__qualname__", None) or type(form).__qualname__
