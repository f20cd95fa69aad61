"""The message and its builder in pure Python, and functions that the compiled ones use, too."""

import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Literal, TypeAlias, final

from typing_extensions import TypeVar

from asyncconsumer.records.record import Headers, Record, refuse_commit

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)


class Message(Generic[K, V]):
    """A record with a deserialized key and value. All other fields are those of the record."""

    __slots__ = (
        "_committing", "key", "offset", "partition", "record", "timestamp", "topic", "value",
    )  # fmt: skip
    __match_args__ = ("topic", "partition", "offset", "timestamp", "key", "value")
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    record: Record
    _committing: "Callable[[Message[K, V]], Awaitable[object]] | None"

    def __init__(
        self,
        record: Record,
        key: K | None = None,
        value: V | None = None,
        commit: "Callable[[Message[K, V]], Awaitable[object]] | None" = None,
    ) -> None:
        if not isinstance(record, Record):
            raise TypeError(f"record must be a Record, not {type(record).__name__}")
        for name, field in (
            ("topic", record.topic),
            ("partition", record.partition),
            ("offset", record.offset),
            ("timestamp", record.timestamp),
            ("key", key),
            ("value", value),
            ("record", record),
            ("_committing", commit),
        ):
            object.__setattr__(self, name, field)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Message does not change: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Message does not change: cannot delete {name!r}")

    async def commit(self) -> None:
        """Commit this message and all earlier ones of its partition.

        This needs ``commit_policy="manual"``.
        """
        await commit_message(self)

    @property
    def headers(self) -> Headers:
        """The headers of the record."""
        return self.record.headers

    @property
    def timestamp_type(self) -> int:
        """The timestamp type of the record."""
        return self.record.timestamp_type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self.record, self.key, self.value) == (other.record, other.key, other.value)

    def __hash__(self) -> int:
        return hash(self.record)

    def __repr__(self) -> str:
        return show_message(self)

    def __reduce__(self) -> tuple[object, ...]:
        return reduce_message(self)


async def commit_message(message: Message[Any, Any]) -> None:
    """Commit a message. If the consumer commits records itself, raise `ConfigError`."""
    committing = message._committing  # noqa: SLF001 - a part of this module
    if committing is None:
        refuse_commit(message.topic, message.partition, message.offset)
    await committing(message)


def show_message(message: Message[Any, Any]) -> str:
    """Return the repr of a message, with long keys and values shortened."""
    place = f"topic={message.topic!r}, partition={message.partition}, offset={message.offset}"
    parts = f"key={_short(message.key)}, value={_short(message.value)}"
    return f"Message({place}, timestamp={message.timestamp}, {parts})"


def _short(part: object) -> str:
    text = repr(part)
    return text if len(text) <= 200 else f"{text[:200]}..."


def reduce_message(message: Message[Any, Any]) -> tuple[object, ...]:
    """Return the function and the arguments with which pickle restores a message.

    The connection of the message to its consumer is not part of them.
    """
    return restore_message, (message.record, message.key, message.value)


def restore_message(record: Record, key: object, value: object) -> Message[Any, Any]:
    """Return an unpickled message, of the `Message` class of the decoder in this process."""
    from asyncconsumer.records import decoding

    return decoding.Message(record, key, value)


Part: TypeAlias = Literal["key", "value"]
Fail: TypeAlias = Callable[[BaseException, Record, Part], object]
"""A function that raises the error of a deserializer for the "key" or "value" of a record."""


@final
class MessageBuilder:
    """A function that makes a message of a record, or an awaitable that returns the message.

    `key` and `value` are deserializers. They get the bytes, or the whole record if
    `key_takes_record` or `value_takes_record` is set. Without a deserializer the bytes are kept. A
    null key or value stays None.

    `message_type` is a subclass of `Message`. If `message_type`, the deserializers and `commit` are
    all missing, the result is the record itself.
    """

    __slots__ = (
        "_intercept_failed",
        "_interceptors",
        "_key",
        "_key_takes_record",
        "_value",
        "_value_takes_record",
        "commit",
        "fail",
        "message_type",
    )  # fmt: skip

    def __init__(
        self,
        key: Callable[[Any], object] | None = None,
        value: Callable[[Any], object] | None = None,
        *,
        key_takes_record: bool = False,
        value_takes_record: bool = False,
        commit: Callable[[Message[Any, Any]], Awaitable[object]] | None = None,
        fail: Fail | None = None,
        interceptors: tuple[Callable[[Record], Record], ...] = (),
        intercept_failed: Callable[[Exception, Record], object] | None = None,
        message_type: type[Message[Any, Any]] = Message,
    ) -> None:
        if not issubclass(message_type, Message):
            raise TypeError("message_type must be a subclass of Message")
        self.message_type = message_type
        self._key = key
        self._value = value
        self._key_takes_record = key_takes_record
        self._value_takes_record = value_takes_record
        self.commit = commit
        self.fail = fail
        self._interceptors = interceptors
        self._intercept_failed = intercept_failed

    def intercept(self, record: Record) -> Record:
        """Return the record that the interceptors made of `record`, one after the other.

        If an interceptor fails, report its error, and pass the record on as it was before.
        """
        for on_consume in self._interceptors:
            try:
                record = _checked(on_consume(record), record)
            except Exception as error:  # noqa: BLE001 - must not stop the consumer
                assert self._intercept_failed is not None
                self._intercept_failed(error, record)
        return record

    def build(self, record: Record) -> object:
        """Return the message of a record, or an awaitable that returns it."""
        made_of_parts = self._key is not None or self._value is not None or self.commit is not None
        if not made_of_parts and self.message_type is Message:
            return record
        key = self._part(record, record.key, "key", self._key, self._key_takes_record)
        try:
            value = self._part(record, record.value, "value", self._value, self._value_takes_record)
        except BaseException:
            _close(key)
            raise
        if inspect.isawaitable(value) or inspect.isawaitable(key):
            return AwaitedMessage(self, record, key, value)
        return _message(self, record, key, value)

    def _part(
        self,
        record: Record,
        data: bytes | None,
        part: Part,
        function: Callable[[Any], object] | None,
        takes_record: bool,  # noqa: FBT001 - as in C
    ) -> Any:  # noqa: ANN401 - the result of a user's function
        if function is None or data is None:
            return data
        if takes_record:
            return function(record)
        try:
            return function(data)
        except BaseException as error:
            if self.fail is not None:
                self.fail(error, record, part)
            raise


def _checked(returned: object, record: Record) -> Record:
    """Return `returned`, the result of an interceptor, if it is a record with the same offset.

    Raise an error for any other result, because it would lose a record or commit a wrong offset.
    """
    if not isinstance(returned, Record):
        raise TypeError(f"on_consume() must return a record, not {type(returned).__name__}")
    if (returned.topic, returned.partition, returned.offset) != (
        record.topic,
        record.partition,
        record.offset,
    ):
        raise ValueError("on_consume() must return a record of the same partition and offset")
    return returned


def _message(
    builder: MessageBuilder,
    record: Record,
    key: Any,  # noqa: ANN401 - values of any type
    value: Any,  # noqa: ANN401
) -> Message[Any, Any]:
    """Return a message of the builder's class, without calling the constructor of that class."""
    message = object.__new__(builder.message_type)
    Message.__init__(message, record, key, value, builder.commit)
    return message


def _close(part: object) -> None:
    if inspect.iscoroutine(part):
        part.close()  # otherwise it would warn that it was never awaited


@final
class AwaitedMessage:
    """An awaitable for a message whose key or value has to be awaited."""

    __slots__ = ("_builder", "_key", "_record", "_value")

    def __init__(
        self,
        builder: MessageBuilder,
        record: Record,
        key: Any,  # noqa: ANN401 - values of any type, or awaitables
        value: Any,  # noqa: ANN401
    ) -> None:
        self._builder = builder
        self._record = record
        self._key = key
        self._value = value

    def __await__(self) -> Generator[Any, Any, Message[Any, Any]]:
        return self._finish().__await__()

    def __del__(self) -> None:
        """Close coroutines that were not awaited. Otherwise Python would warn about them."""
        _close(self._key)
        _close(self._value)

    async def _finish(self) -> Message[Any, Any]:
        from asyncconsumer.records import decoding

        builder, record = self._builder, self._record
        try:
            key = await _awaited(builder, record, self._key, "key")
        except BaseException:
            _close(self._value)
            raise
        value = await _awaited(builder, record, self._value, "value")
        message_type: type[Any] = builder.message_type
        if issubclass(message_type, Message):
            return _message(builder, record, key, value)
        # not the constructor of a subclass
        new: Callable[..., Message[Any, Any]] = decoding.Message.__new__
        return new(message_type, record, key, value, builder.commit)


async def _awaited(
    builder: MessageBuilder,
    record: Record,
    made: Any,  # noqa: ANN401 - a value of any type, or an awaitable
    part: Part,
) -> Any:  # noqa: ANN401
    if not inspect.isawaitable(made):
        return made
    try:
        return await made
    except BaseException as error:
        if builder.fail is not None:
            builder.fail(error, record, part)
        raise
