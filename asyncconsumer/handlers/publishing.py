"""Publishing of the values that handlers return."""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import CoroutineType, NoneType
from typing import Any, Final, Protocol, get_args, get_origin

from asyncconsumer.config import ConnectionConfig, ProducerConfig, SendConfig
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.acknowledgements import Sent
from asyncconsumer.handlers.invoke import CallHandler
from asyncconsumer.handlers.outgoing import PublishMiddleware, SenderWithMiddlewares
from asyncconsumer.handlers.partition_work import Item
from asyncconsumer.producer.producer import Producer, SendHeaders, pairs
from asyncconsumer.records.record import Headers
from asyncconsumer.serdes import RecordContext, Serializer, make_serializer
from asyncconsumer.serdes.models import is_union, without_none
from asyncconsumer.serdes.serializer import by_annotation

_SEVERAL: Final = (
    list, tuple, Sequence, Iterable, Iterator, Generator, AsyncIterable, AsyncIterator,
    AsyncGenerator,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record that a handler publishes: ``Outgoing("billed", value=bill, key=bill.customer)``.

    Without a `key`, the published record has no key. `Publish.serializer` serializes the value, if
    it is set. Otherwise the value's type selects the serializer. An annotated type in the return
    annotation of the handler can name one: ``Annotated[Bill, registry.avro(Bill)] | Outgoing``.
    """

    topic: str
    value: Any = field(default=None, repr=False, kw_only=True)
    key: Any = field(default=None, repr=False, kw_only=True)
    headers: SendHeaders = field(default=(), repr=False, kw_only=True)
    partition: int | None = field(default=None, kw_only=True)


UNTYPED: Final = (Any, object, Outgoing)
"""Return annotations that do not tell the type of a result's value."""


@dataclass(frozen=True, slots=True)
class Publish:
    """The topic of a handler's results, and their encoding.

    `serializer` is one of the forms of `asyncconsumer.serdes.make_serializer`. The default is the
    return annotation of the handler, or the type of each value. `key` is a function of a value that
    returns its key. By default, a result has the key of the record that it was made of. Results of
    a batch have no key.

    Without a topic, the handler returns `Outgoing` records, or None.
    """

    topic: str | None = None
    serializer: Any = None
    key: Callable[[Any], Any] | None = None
    key_serializer: Any = None

    def __post_init__(self) -> None:
        topic: object = self.topic
        if topic is not None and (not isinstance(topic, str) or not topic):
            raise ConfigError(f"`publish` needs the name of a topic, got {topic!r}")
        if self.key is not None and not callable(self.key):
            raise ConfigError(f"`key` of Publish must be a function of a value, got {self.key!r}")


def publish_option(option: object) -> Publish | None:
    """Return the option `publish` of a handler as a `Publish`. A string is the topic."""
    if option is None or isinstance(option, Publish):
        return option
    if isinstance(option, str):
        return Publish(option)
    raise ConfigError(f"`publish` must be a topic or a Publish(...), got {option!r}")


def collected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls the generator `function` and returns its values as a list.

    A function that is no generator is returned unchanged.
    """
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.isasyncgenfunction(target):

        async def collect(*arguments: object, **keywords: object) -> list[Any]:
            return [value async for value in function(*arguments, **keywords)]

        return collect
    if inspect.isgeneratorfunction(target):
        return lambda *arguments, **keywords: list(function(*arguments, **keywords))
    return function


class RecordSender(Protocol):
    """The methods of a `Producer` that send serialized records."""

    def send_now(
        self, topic: str, key: bytes | None, value: bytes | None
    ) -> Awaitable[object] | None:
        """Send a record without a wait, and return its delivery.

        Return None if a wait is necessary. The record was then not sent, and the caller awaits
        `send_bytes` instead.
        """

    async def send_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Awaitable[object]:
        """Send a record, after a wait if necessary, and return its delivery."""


class ResultPublisher:
    """The publisher of one handler's results. `middlewares` are called around each record."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        options: Publish,
        middlewares: Sequence[PublishMiddleware] = (),
    ) -> None:
        self._producer: RecordSender | None = None
        self._middlewares = middlewares
        self._name = name
        self.topic: Final = options.topic
        self._place = None if self.topic is None else RecordContext(self.topic, "value", ())
        self._key = options.key
        place = f"handler {name}"
        try:
            self._serialize, self._serialize_any = _serializers(function, options.serializer)
            self._serialize_key: Final = make_serializer(options.key_serializer)
        except ConfigError as error:
            raise ConfigError(
                f"{place}: its results cannot be published: {error}. Or set "
                "publish=Publish(topic, serializer=...)"
            ) from error

    def use(self, producer: RecordSender) -> None:
        """Set the producer that sends the results. The app calls this when it is opened."""
        around = self._middlewares
        self._producer = SenderWithMiddlewares(producer, around) if around else producer

    def sent(self, call: CallHandler) -> CallHandler:
        """Return a function that makes the handler call `call` and sends its results.

        It returns a `Sent` before the results are written, or None without results. No middleware
        may be around it, because that middleware would not learn of results that cannot be written.
        """

        async def send(item: Item) -> Sent | None:
            result = await call(item)
            if result is None:
                return None
            key = None if isinstance(item, list) else item.key
            if type(result) is list or type(result) is tuple:
                deliveries: Any = await self._send_each(result, key)
                return Sent(deliveries) if deliveries else None
            delivery: Any = self._send(result, key)
            return Sent((await delivery if type(delivery) is CoroutineType else delivery,))

        return send

    def written(self, call: CallHandler) -> CallHandler:
        """Return a function that makes the handler call `call` and writes its results.

        It returns when all in-sync replicas have the results.
        """

        async def publish(item: Item) -> Any:  # noqa: ANN401 - what the handler returns
            result = await call(item)
            if result is not None:
                key = None if isinstance(item, list) else item.key
                several = result if type(result) in (list, tuple) else (result,)
                for delivery in await self._send_each(several, key):
                    await delivery
            return result

        return publish

    async def _send_each(
        self, results: Iterable[Any], source_key: bytes | None
    ) -> list[Awaitable[object]]:
        """Send several results. Return their deliveries."""
        deliveries = []
        for result in results:
            if result is not None:
                delivery: Any = self._send(result, source_key)
                if type(delivery) is CoroutineType:
                    delivery = await delivery
                deliveries.append(delivery)
        return deliveries

    def _send(self, result: Any, source_key: bytes | None) -> Awaitable[object]:  # noqa: ANN401
        """Send a result. Return its delivery, or a coroutine that returns the delivery.

        Most results can be sent without a wait. A coroutine for each of them would be slow.
        """
        producer, place = self._producer, self._place
        assert producer is not None
        if isinstance(result, Outgoing):
            return self._send_outgoing(producer, result)
        if place is None:
            raise ConfigError(
                f"handler {self._name} returned {type(result).__name__}, but its `publish` has no "
                "topic: return Outgoing(topic, ...), or name the topic"
            )
        value = self._serialize(result, place)
        if self._key is None and (value is None or isinstance(value, bytes)):
            topic = place.topic
            return producer.send_now(topic, source_key, value) or producer.send_bytes(
                topic, source_key, value
            )
        return self._send_made(producer, result, value, source_key, place)

    async def _send_made(
        self,
        producer: RecordSender,
        result: Any,  # noqa: ANN401
        value: Any,  # noqa: ANN401
        key: bytes | None,
        place: RecordContext,
    ) -> Awaitable[object]:
        """Send a result. `value` is the serialized result, or an awaitable that returns it."""
        if not (value is None or isinstance(value, bytes)):
            value = await value
        if self._key is not None:
            key = await self._key_of(self._key(result), place)
        return await producer.send_bytes(place.topic, key, value)

    async def _send_outgoing(self, producer: RecordSender, record: Outgoing) -> Awaitable[object]:
        headers = pairs(record.headers)
        place = RecordContext(record.topic, "value", headers)
        value = self._serialize_any(record.value, place)
        if not (value is None or isinstance(value, bytes)):
            value = await value
        key = await self._key_of(record.key, place)
        return await producer.send_bytes(record.topic, key, value, headers, record.partition)

    async def _key_of(self, key: Any, place: RecordContext) -> bytes | None:  # noqa: ANN401
        made = self._serialize_key(key, place._replace(part="key"))
        return made if made is None or isinstance(made, bytes) else await made


async def open_publishers(
    stack: AsyncExitStack,
    publishers: Iterable[ResultPublisher | None],
    connection: ConnectionConfig,
    network: dict[str, Any],
) -> None:
    """Open one producer for all handlers that publish. Without such handlers, open none."""
    needed = [publisher for publisher in publishers if publisher is not None]
    if needed:
        config = ProducerConfig(connection, SendConfig())
        producer = await stack.enter_async_context(Producer[Any, Any](config=config, **network))
        for publisher in needed:
            publisher.use(producer)


def result_types(function: Callable[..., Any]) -> list[Any]:
    """Return the types of a single result that the return annotation names, without None.

    For a list, a tuple or a generator, these are the types of its items. The list is empty if the
    annotation names no type.
    """
    kind = inspect.signature(function, eval_str=True).return_annotation
    if kind is inspect.Signature.empty:
        return []
    kind = without_none(kind)
    if get_origin(kind) in _SEVERAL or kind in _SEVERAL:
        items = [item for item in get_args(kind) if item is not Ellipsis]
        same = set(items[:1]) if get_origin(kind) in (Generator, AsyncGenerator) else set(items)
        kind = without_none(same.pop()) if len(same) == 1 else None
    members = get_args(kind) if is_union(kind) else (kind,)
    return [member for member in members if member not in (None, NoneType)]


def _serializers(function: Callable[..., Any], serializer: Any) -> tuple[Serializer, Serializer]:  # noqa: ANN401
    """Return the serializers of plain results, and of the values of `Outgoing` records.

    Without `serializer`, the return annotation selects them.
    """
    if serializer is not None:
        return (make_serializer(serializer),) * 2
    kinds = result_types(function)
    of_any = by_annotation(kinds)
    named = len(kinds) == 1 and kinds[0] not in UNTYPED
    return make_serializer(kinds[0]) if named else of_any, of_any
