"""The deserializer type that all forms of deserializers are converted to."""

from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from operator import attrgetter
from types import CoroutineType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
    final,
)

from asyncconsumer.errors import ConsumerError, DeserializationFailed
from asyncconsumer.records.decoding import Record
from asyncconsumer.records.record import Headers

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Part: TypeAlias = Literal["key", "value"]
Made: TypeAlias = Coroutine[Any, Any, T] | T
"""A value, or a coroutine that returns it."""

# Says nothing of the record; anything else does, also a panic of a package that is written in Rust.
_THE_END: Final = (CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit)


class RecordContext(NamedTuple):
    """The origin of the bytes: topic, key or value, and headers of the record."""

    topic: str
    part: Part
    headers: Headers


class Deserializes(Protocol[T_co]):
    """A user object that needs the origin of the bytes; its method may be ``async``."""

    def deserialize(self, data: bytes, place: RecordContext, /) -> Made[T_co]:
        """Return the deserialized value."""


class Loads(Protocol[T_co]):
    """The module `json`, or one like it."""

    def loads(self, data: bytes, /) -> T_co:
        """Return the deserialized value."""


@final
class Deserializer(Generic[T_co]):
    """A deserializer of keys or values. `make_deserializer` makes these.

    A consumer gets a `reader` once, and calls it for each record::

        read = deserializer.reader("value")
        made = read(record)
        if isinstance(made, CoroutineType):  # never, unless `deserializer.waits`
            made = await made

    Nothing is awaited for a record unless there is something to wait for: a schema that was
    not seen before, or a function that is ``async``.
    """

    __slots__ = ("_call", "_wants_place", "as_it_is", "name", "waits")

    def __init__(
        self,
        call: Callable[..., Made[T_co]],
        name: str,
        *,
        waits: bool = False,
        wants_place: bool = False,
        as_it_is: bool = False,
    ) -> None:
        self.name = name
        self.waits = waits  # whether a reader may return a coroutine
        self.as_it_is = as_it_is  # whether there is nothing to do
        self._call = call
        self._wants_place = wants_place

    def __repr__(self) -> str:
        return f"<Deserializer {self.name}>"

    def reader(self, part: Part) -> Callable[[Record], Made[T_co | None]]:
        """What makes something of this part of a record. None, a tombstone, stays None.

        Whatever a deserializer raises comes as a `DeserializationFailed`, which has the record.
        """
        data_of: Callable[[Record], bytes | None] = attrgetter(part)
        if self.as_it_is:
            return data_of  # type: ignore[return-value] # T_co is bytes
        if self._wants_place:
            return self._placed_reader(part, data_of)
        call, waits = self._call, self.waits

        def read(record: Record) -> Made[T_co | None]:
            data = data_of(record)
            if data is None:
                return None
            try:
                made = call(data)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is told with its place
                _fail(error, record, part)
            if waits and isinstance(made, CoroutineType):
                return _waited(made, record, part)
            return made

        return read

    def _placed_reader(
        self, part: Part, data_of: Callable[[Record], bytes | None]
    ) -> Callable[[Record], Made[T_co | None]]:
        call = self._call

        def read(record: Record) -> Made[T_co | None]:
            data = data_of(record)
            if data is None:
                return None
            try:
                made = call(data, RecordContext(record.topic, part, record.headers))
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is told with its place
                _fail(error, record, part)
            return _waited(made, record, part) if isinstance(made, CoroutineType) else made

        return read


async def _waited(made: Coroutine[Any, Any, T], record: Record, part: Part) -> T:
    try:
        return await made
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is told with its place
        _fail(error, record, part)


def _fail(error: BaseException, record: Record, part: Part) -> NoReturn:
    """What time may mend, such as a registry that is down, says so; the record is not bad.

    Of other errors only the kind is told: their texts quote the record.
    """
    if isinstance(error, _THE_END):
        raise error
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    if isinstance(error, ConsumerError):
        reason, retriable = str(error), error.retriable
    else:
        reason, retriable = type(error).__name__, False
    raise DeserializationFailed(part, record, place, reason, retriable=retriable) from error
