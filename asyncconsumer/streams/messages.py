"""The stream of the classic API, of records or decoded messages."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, NamedTuple, cast

from typing_extensions import TypeVar

from asyncconsumer.records import decoding
from asyncconsumer.records.record import refuse_commit
from asyncconsumer.streams.stream import Stream

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

Decoder = Callable[[bytes], V]
"""Decodes the bytes of a key or a value. It is not called for None, which stays None."""


class Message(NamedTuple, Generic[K, V]):
    """A record with a decoded key and value. All other fields are those of the record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    record: decoding.Record
    committing: Callable[["Message[K, V]"], Awaitable[object]] | None = None

    @classmethod
    def of(
        cls,
        record: decoding.Record,
        key: K | None,
        value: V | None,
        committing: Callable[["Message[K, V]"], Awaitable[object]] | None = None,
    ) -> "Message[K, V]":
        """Return a message for a record and its decoded key and value."""
        place = record.topic, record.partition, record.offset, record.timestamp
        return cls(*place, key, value, record, committing)

    async def commit(self) -> None:
        """Commit this message and all before it of its partition.

        This needs ``commit_policy="manual"``.
        """
        if self.committing is None:
            refuse_commit(self.topic, self.partition, self.offset)
        await self.committing(self)

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers of the record."""
        return self.record.headers


class _DecodedMessages(Generic[K, V]):
    """The messages of a `MessageStream`, for its loops."""

    __slots__ = ("_decode", "_records")

    def __init__(
        self, records: decoding.AsyncRecords, decode: Callable[[decoding.Record], Message[K, V]]
    ) -> None:
        self._records = records
        self._decode = decode

    @property
    def in_hand(self) -> bool:
        """Whether a message was delivered, and no other was requested since."""
        return self._records.in_hand

    async def __anext__(self) -> Message[K, V]:
        return self._decode(await anext(self._records))


class MessageStream(Generic[K, V]):
    """A stream for ``async for message in stream``, the counterpart of Kafka's KafkaStream.

    Without decoders it delivers the records themselves, which is faster. With decoders it
    delivers a `Message` for each. Messages are acknowledged in the same way as in a `Consumer`.
    """

    def __init__(
        self,
        stream: Stream,
        clear: Callable[[Stream], None],
        key_decoder: Decoder[K] | None = None,
        value_decoder: Decoder[V] | None = None,
    ) -> None:
        self.records = stream
        self._clear = clear
        self._key_decoder = key_decoder
        self._value_decoder = value_decoder
        self._by_hand = stream.iteration(aiter(stream), self._prepare)

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        records = aiter(self.records)
        if self._key_decoder is None and self._value_decoder is None:
            loop = self.records.iterate(records, self._prepare)
            return cast("AsyncIterator[Message[K, V]]", loop)
        return self.records.iterate(_DecodedMessages(records, self._decoded), self._prepare)

    async def __anext__(self) -> Message[K, V]:
        """Return the next message, and acknowledge the one before.

        A wait that is cancelled or timed out loses nothing.
        """
        self._by_hand.begin()
        return self._decoded(await anext(aiter(self.records)))

    def _prepare(self, again: bool) -> None:  # noqa: FBT001 - called by the reader
        """Rewind to the records that another iteration did not acknowledge."""
        if again and self.records.unacknowledged():
            self.clear()

    def _decoded(self, record: decoding.Record) -> Message[K, V]:
        if self._key_decoder is None and self._value_decoder is None:
            return cast("Message[K, V]", record)
        as_it_is: Decoder[Any] = _as_it_is
        key_decoder, value_decoder = self._key_decoder or as_it_is, self._value_decoder or as_it_is
        return Message.of(
            record,
            None if record.key is None else key_decoder(record.key),
            None if record.value is None else value_decoder(record.value),
        )

    def clear(self) -> None:
        """Drop the buffered records, and fetch again from the last acknowledged offset."""
        self._clear(self.records)


def _as_it_is(data: bytes) -> bytes:
    return data
