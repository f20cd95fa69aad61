"""Markers that choose a parameter's argument, in ``Annotated[...]`` or as its default."""

import enum
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, Union, get_args, get_origin
from uuid import UUID

from asyncconsumer.errors import ConfigError, DeserializationFailed
from asyncconsumer.records.decoding import Record
from asyncconsumer.serdes import make_deserializer


class Key:
    """A marker for the record's key, deserialized to a type: ``Annotated[str, Key]``.

    A parameter named `key` needs no marker. ``key: Key`` gets the bytes.
    """


class Value:
    """A marker for the record's value, for any parameter name: ``Annotated[Order, Value]``.

    A `Deserializer` may be added to `Key` or `Value`. It can also replace `Value`, as in
    ``Annotated[Order, registry.avro(Order)]``.
    """


class Depends:
    """A marker for a dependency: ``Annotated[Session, Depends(open_session)]``.

    The dependency is a function, which may be async or a generator, or a class. Its parameters are
    chosen like those of a handler, so it may have dependencies, too. It is called once for each
    call of the handler, or once for each parameter with ``use_cache=False``.

    A generator yields the argument. It continues after the handler call. An exception of the
    handler is raised at its ``yield``. Plain functions and generators run in the event loop and
    must not block.

    FastAPI's ``Depends`` is accepted as well.
    """

    def __init__(
        self, dependency: Callable[..., Any] | None = None, *, use_cache: bool = True
    ) -> None:
        self.dependency: Final = dependency
        self.use_cache: Final = use_cache

    def __repr__(self) -> str:
        return f"Depends({getattr(self.dependency, '__qualname__', self.dependency)})"


@dataclass(frozen=True, slots=True)
class State:
    """A marker for the state that the app's lifespan yields, or for one item or attribute of it.

    ``Annotated[Pool, State("pool")]`` gets the item of a mapping, or the attribute of an object.
    """

    name: str | None = None

    def of(self, state: Any) -> Any:  # noqa: ANN401 - as the lifespan yields it
        """Return the part of `state` that this marker names."""
        if self.name is None:
            return state
        return state[self.name] if isinstance(state, Mapping) else getattr(state, self.name)


class MissingHeader(Exception):
    """An error for a record without a header that a parameter of the handler needs."""


@dataclass(frozen=True, slots=True)
class Header:
    """A marker for the last header with a name: ``Annotated[int, Header("version")]``.

    The header's text is converted to the type. Without the header, the parameter gets its default,
    or None if the type allows that. Otherwise the record cannot be deserialized.
    """

    name: str

    def reader(self, kind: Any, default: Any) -> Callable[[Record], Any]:  # noqa: ANN401
        """Return a function that reads the header of a record as the type `kind`.

        A `default` of `inspect.Parameter.empty` means that there is no default.
        """
        kind, optional = _without_none(kind)
        convert, name, missing = _conversion(kind), self.name, object()
        if optional and default is _NO_DEFAULT:
            default = None

        def read(record: Record) -> Any:  # noqa: ANN401
            text: Any = next(
                (text for each, text in reversed(record.headers) if each == name), missing
            )
            if text is missing:
                if default is _NO_DEFAULT:
                    raise _failed(record, name, MissingHeader(name))
                return default
            if text is None and optional:
                return None
            try:
                return convert(text or b"")
            except Exception as error:
                raise _failed(record, name, error) from error

        return read


_NO_DEFAULT: Final = inspect.Parameter.empty
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_OF_TEXT: Final[Mapping[object, Callable[[str], Any]]] = {
    int: int,
    float: float,
    bool: lambda text: _BOOLEANS[text.lower()],
    UUID: UUID,
    Decimal: Decimal,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
}


def _conversion(kind: Any) -> Callable[[bytes], Any]:  # noqa: ANN401
    """Return a function that converts the bytes of a header to the type `kind`."""
    convert = _OF_TEXT.get(kind)
    if convert is None and isinstance(kind, type) and issubclass(kind, enum.Enum):
        convert = kind
    if convert is not None:
        return lambda data: convert(data.decode())
    made = make_deserializer(kind)
    if made.waits:
        raise ConfigError(f"a header cannot be converted by {made.name}: pass a type")
    read = made.function("value")[0] or bytes
    return lambda data: read(data)


def _without_none(kind: Any) -> tuple[Any, bool]:  # noqa: ANN401
    """Return a type without None, and whether it included None, as in ``str | None``."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind, False
    others = [each for each in get_args(kind) if each is not types.NoneType]
    if len(others) == len(get_args(kind)):
        return kind, False
    return (others[0] if len(others) == 1 else Union[tuple(others)]), True  # noqa: UP007


def _failed(record: Record, name: str, error: Exception) -> DeserializationFailed:
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    missing = isinstance(error, MissingHeader)
    reason = "the record does not have it" if missing else type(error).__name__
    return DeserializationFailed(f"header {name!r}", record, place, reason)
