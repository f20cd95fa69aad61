"""The class `Deserializer`, with which consumers and handlers deserialize keys and values."""

from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import (
    Any,
    Final,
    Generic,
    NamedTuple,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
)

from asyncconsumer.errors import ConsumerError, DeserializationFailed
from asyncconsumer.records.decoding import PartReader, Record
from asyncconsumer.records.message import Part
from asyncconsumer.records.record import Headers

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Made: TypeAlias = Coroutine[Any, Any, T] | T
"""A value, or a coroutine that returns it."""

# Not errors of the record. Everything else is, including a panic of a package written in Rust.
_NOT_OF_THE_RECORD: Final = (CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit)


class RecordContext(NamedTuple):
    """The origin of bytes: the topic, the part (key or value), and the headers of their record."""

    topic: str
    part: Part
    headers: Headers


class Deserializes(Protocol[T_co]):
    """A user's deserializer that also gets the origin of the bytes. Its method may be ``async``."""

    def deserialize(self, data: bytes, place: RecordContext, /) -> Made[T_co]:
        """Return the value that the bytes `data` represent. `place` is the origin of the bytes."""


class Loads(Protocol[T_co]):
    """The module `json`, or another module with a function `loads`."""

    def loads(self, data: bytes, /) -> T_co:
        """Return the value that the JSON text `data` represents."""


class Deserializer(Generic[T_co]):
    """A deserializer of keys or values, as `make_deserializer` returns it.

    A consumer gets a `reader` once and calls it for each record::

        read = deserializer.reader("value")
        made = read(record)
        if isinstance(made, CoroutineType):  # never, unless `deserializer.waits`
            made = await made

    A reader returns a coroutine only if the schema of the record is not known yet, or if the user's
    function is ``async``.
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
        self.as_it_is = as_it_is  # whether the bytes are the value
        self._call = call
        self._wants_place = wants_place

    def function(self, part: Part) -> tuple[Callable[[Any], object] | None, bool]:
        """Return the function that a `MessageBuilder` calls, and whether it takes the whole record.

        If the second value is False, the function takes the bytes of the key or value. The function
        is None if the bytes are the value already.
        """
        if self.as_it_is:
            return None, False
        return (self.reader(part), True) if self._wants_place else (self._call, False)

    def __repr__(self) -> str:
        return f"<Deserializer {self.name}>"

    def reader(self, part: Part) -> Callable[[Record], Made[T_co | None]]:
        """Return a function that deserializes the key or value of a record. A null becomes None.

        An error of the deserializer is raised as `DeserializationFailed`, which has the record.
        """
        if self.as_it_is:
            return PartReader(part)
        if self._wants_place:
            return self._placed_reader(part, PartReader(part))
        read = PartReader(part, self._call, raise_failure)
        if not self.waits:
            return read

        def read_or_wait(record: Record) -> Made[T_co | None]:
            made = read(record)
            return _waited(made, record, part) if isinstance(made, CoroutineType) else made

        return read_or_wait

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
            except BaseException as error:  # noqa: BLE001 - raised with the record
                raise_failure(error, record, part)
            return _waited(made, record, part) if isinstance(made, CoroutineType) else made

        return read


async def _waited(made: Coroutine[Any, Any, T], record: Record, part: Part) -> T:
    try:
        return await made
    except BaseException as error:  # noqa: BLE001 - raised with the record
        raise_failure(error, record, part)


def raise_failure(error: BaseException, record: Record, part: Part) -> NoReturn:
    """Raise `DeserializationFailed` for an error of a deserializer.

    The new error is retriable if `error` is, for example because a registry is unavailable. For an
    error of another package only the type is shown, because its text may quote the record.
    """
    if isinstance(error, _NOT_OF_THE_RECORD):
        raise error
    if isinstance(error, DeserializationFailed) and error.record is record:
        raise error  # already raised by the reader of this record
    place = f"{record.topic}[{record.partition}]@{record.offset}"
    if isinstance(error, ConsumerError):
        reason, retriable = str(error), error.retriable
    else:
        reason, retriable = type(error).__name__, False
    raise DeserializationFailed(part, record, place, reason, retriable=retriable) from error
