"""Middlewares around the records that handlers publish."""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

from asyncconsumer.handlers.context import Context
from asyncconsumer.records.record import Headers

if TYPE_CHECKING:
    from asyncconsumer.handlers.publishing import RecordSender


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A serialized record that a handler publishes, for middlewares.

    `context` is the context of the handler call. `index` counts the records of the call from 0.
    Without a `partition`, the key selects the partition. `dataclasses.replace` returns a changed
    record.
    """

    context: Context
    index: int
    topic: str
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Headers = field(default=(), repr=False)
    partition: int | None = None

    def header(self, name: str) -> bytes | None:
        """Return the last header of this name, or None."""
        return next((text for each, text in reversed(self.headers) if each == name), None)

    def with_headers(self, headers: Mapping[str, str | bytes | None]) -> Self:
        """Return this record with more headers. They replace headers of the same name."""
        others = (header for header in self.headers if header[0] not in headers)
        added = (
            (name, value.encode() if isinstance(value, str) else value)
            for name, value in headers.items()
        )
        return replace(self, headers=(*others, *added))


PublishNext: TypeAlias = Callable[[OutgoingRecord], Awaitable[Any]]
"""A function that calls the next middleware, or sends the record and returns its delivery.

The record is sent with a batch. The delivery is an awaitable of the place of the record.
"""


class PublishMiddleware(Protocol):
    """An object that is called around each record that a handler publishes."""

    async def publish(self, call_next: PublishNext, record: OutgoingRecord, /) -> Any:  # noqa: ANN401
        """Return what ``await call_next(record)`` returns.

        An implementation that does not call `call_next` drops the record. If it raises an
        exception, the handler call has failed.
        """


class _HandlerCall:
    """A handler call, which counts the records that it publishes."""

    __slots__ = ("context", "published")

    def __init__(self, context: Context) -> None:
        self.context: Final = context
        self.published = 0


_current: Final[ContextVar[_HandlerCall]] = ContextVar("call")


def begin_call(context: Context) -> None:
    """Set the context of the current task's handler call, for the records that it publishes."""
    _current.set(_HandlerCall(context))


class _NotWritten:
    """The delivery of a record that a middleware has dropped."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class SenderWithMiddlewares:
    """A sender of records with middlewares around it. The first one is the outermost."""

    def __init__(self, sender: "RecordSender", middlewares: Sequence[PublishMiddleware]) -> None:
        self._sender = sender
        chain: PublishNext = self._send
        for middleware in reversed(middlewares):
            chain = partial(middleware.publish, chain)
        self._chain = chain

    def send_now(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Return None, because middlewares are async. The caller then awaits `send_bytes`."""

    async def send_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Awaitable[object]:
        """Call the middlewares with a record, and then the sender."""
        call = _current.get()
        record = OutgoingRecord(call.context, call.published, topic, key, value, headers, partition)
        call.published += 1
        delivery: Awaitable[object] | None = await self._chain(record)
        return _NotWritten() if delivery is None else delivery

    async def _send(self, record: OutgoingRecord) -> Awaitable[object]:
        return await self._sender.send_bytes(
            record.topic, record.key, record.value, record.headers, record.partition
        )
