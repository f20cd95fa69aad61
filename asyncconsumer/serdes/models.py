"""Conversion between JSON or plain objects and a type, by pydantic or msgspec.

Both packages are optional. A package is imported when a type needs it.
"""

import dataclasses
import sys
import types
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from asyncconsumer.errors import ConfigError

_OF_AVRO: Final = (bytes, date, datetime, time, Decimal, UUID)  # types that fastavro encodes


class Model(NamedTuple):
    """The functions that create values of a type, and the package to which they belong."""

    of_json: Callable[[bytes], Any]
    of_object: Callable[[Any], Any]
    package: str


def model_of(kind: Any) -> Model:  # noqa: ANN401 - a class, or a form such as list[Order]
    """Return the functions that create values of the type `kind`.

    Raise ConfigError if no installed package supports the type.
    """
    if _is_subclass(kind, "pydantic", "BaseModel"):
        return Model(kind.model_validate_json, kind.model_validate, "pydantic")
    if _is_subclass(kind, "msgspec", "Struct"):
        return _by_msgspec(import_module("msgspec"), kind)
    return _composed(kind)


def dump_of(kind: Any) -> Callable[[Any], bytes]:  # noqa: ANN401 - as in `model_of`
    """Return the function that writes values of a type as JSON.

    Raise ConfigError if no installed package supports the type.
    """
    if model_of(kind).package == "msgspec":
        encode: Callable[[Any], bytes] = import_module("msgspec.json").Encoder().encode
        return encode
    if _is_subclass(kind, "pydantic", "BaseModel"):
        return lambda value: value.model_dump_json(by_alias=True).encode()
    adapter = import_module("pydantic").TypeAdapter(kind)
    return lambda value: adapter.dump_json(value, by_alias=True)


def plain_of(value: Any) -> Any:  # noqa: ANN401 - any value
    """Return a model as dicts and lists, in which dates, decimals and UUIDs are still objects.

    Return other values unchanged.
    """
    kind = type(value)
    if _is_subclass(kind, "pydantic", "BaseModel"):
        return value.model_dump(by_alias=True)
    if _is_subclass(kind, "msgspec", "Struct"):
        return import_module("msgspec").to_builtins(value, builtin_types=_OF_AVRO)
    return dataclasses.asdict(value) if dataclasses.is_dataclass(kind) else value


def schema_of(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - as in `model_of`
    """Return the JSON schema of a model, by pydantic or msgspec."""
    schema: dict[str, Any]
    if model_of(kind).package == "msgspec":
        schema = import_module("msgspec.json").schema(kind)
    else:
        schema = import_module("pydantic").TypeAdapter(kind).json_schema(by_alias=True)
    return schema


def without_none(kind: Any) -> Any:  # noqa: ANN401
    """Return the type without None, such as ``Order`` for ``Order | None``.

    The type of None alone becomes None. Other types, and unions with several other members, are
    returned unchanged.
    """
    if kind is types.NoneType:
        return None
    if is_union(kind):
        others = [member for member in get_args(kind) if member is not types.NoneType]
        return others[0] if len(others) == 1 else kind
    return kind


def is_union(kind: object) -> bool:
    """Return whether a type is a union, such as ``Order | Refund``."""
    return get_origin(kind) in (Union, types.UnionType)


def package(name: str, feature: str) -> ModuleType:
    """Import and return the optional package `name`. `feature` says in errors what needs it.

    If it is not installed, raise ConfigError with the command that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        top = name.partition(".")[0]
        raise ConfigError(f"{feature} needs the package {top}: pip install {top}") from error


def named(kind: object) -> str:
    """Return the text of a type for messages, as a user would write it."""
    return kind.__name__ if isinstance(kind, type) else repr(kind)


def _is_subclass(kind: object, module: str, name: str) -> bool:
    """Return whether `kind` is a subclass of the class `name` in `module`.

    `module` is not imported for this. The user's subclass has imported it already.
    """
    base = getattr(sys.modules.get(module), name, None)
    return base is not None and isinstance(kind, type) and issubclass(kind, base)


def _composed(kind: Any) -> Model:  # noqa: ANN401
    """Return the functions that create values of a dataclass, a TypedDict or a generic type.

    An example of a generic type is list[Order]. Pydantic is tried first. If it does not support the
    type, msgspec is tried.
    """
    installed = [name for name in ("pydantic", "msgspec") if _is_installed(name)]
    if not installed:
        raise ConfigError(
            f"{named(kind)} needs the package pydantic or msgspec: pip install pydantic. "
            "Or pass a function that creates it"
        )
    for name, make in (("pydantic", _by_pydantic), ("msgspec", _by_msgspec)):
        if name in installed:
            try:
                return make(import_module(name), kind)
            except (TypeError, ConfigError):
                continue
    raise ConfigError(
        f"{' and '.join(installed)} cannot create {named(kind)}. Pass a function of bytes, e.g. "
        f"lambda data: {named(kind)}(...)"
    )


def _is_installed(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def _by_pydantic(pydantic: Any, kind: Any) -> Model:  # noqa: ANN401
    try:
        adapter = pydantic.TypeAdapter(kind)
    except pydantic.errors.PydanticUserError as error:
        raise ConfigError(str(error)) from error
    return Model(adapter.validate_json, adapter.validate_python, "pydantic")


def _by_msgspec(msgspec: Any, kind: Any) -> Model:  # noqa: ANN401
    inspect = import_module("msgspec.inspect")
    if isinstance(
        inspect.type_info(kind), inspect.CustomType
    ):  # accepted by msgspec, but not converted
        raise ConfigError(f"msgspec does not support {named(kind)}")

    def of_object(plain: Any) -> Any:  # noqa: ANN401
        return msgspec.convert(plain, kind)

    return Model(msgspec.json.Decoder(kind).decode, of_object, "msgspec")
