"""A consumer's stream as its user reads it: with deserializers and interceptors, if there are."""

from collections.abc import AsyncIterator
from types import CoroutineType
from typing import Generic, cast

from asyncconsumer.consumer.interceptors import Interceptors
from asyncconsumer.errors import DeserializationFailed
from asyncconsumer.serdes import Deserializer
from asyncconsumer.streams.messages import K, Message, V
from asyncconsumer.streams.stream import Stream
from asyncconsumer.wire.accel import Record


class Reading(Generic[K, V]):
    """An async iterator of messages. Without anything to do it is that of the stream itself."""

    def __init__(
        self,
        stream: Stream,
        key: Deserializer[K],
        value: Deserializer[V],
        interceptors: Interceptors,
    ) -> None:
        self.stream = stream
        self._records = aiter(stream)
        self._as_they_are = key.as_it_is and value.as_it_is
        self._waits = key.waits or value.waits
        self._key = key.reader("key")
        self._value = value.reader("value")
        self._interceptors = interceptors
        self._unmade: Record | None = None  # was taken, and its deserializers may need more time
        self._in_hand: object = None  # what it is part of
        self._waiting = False

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        if self._as_they_are and not self._interceptors:
            return cast("AsyncIterator[Message[K, V]]", self._records)
        return self

    async def __anext__(self) -> Message[K, V]:
        """The next one. Who gives up waiting for it, or is timed out, can ask again.

        So can who was told that a deserializer failed in a way that time may mend: the same record
        comes again. After another failure the next one comes, for it is the record that is bad.
        """
        while True:
            if self._unmade is None:
                record = self._interceptors.on_consume(await anext(self._records))
                if self._as_they_are:
                    return cast("Message[K, V]", record)
                if not self._waits:
                    key, value = self._key(record), self._value(record)
                    return Message.of(record, cast("K | None", key), cast("V | None", value))
                self._unmade, self._in_hand = record, self.stream.in_hand
            elif self._waiting:
                raise RuntimeError("another task already waits for the next record")
            elif not await self.stream.still_has(self._in_hand):
                self._unmade = None
                continue
            if (message := await self._made(self._unmade)) is not None:
                return message

    async def _made(self, record: Record) -> Message[K, V] | None:
        """A message of it; None if it was lost while its deserializers took their time."""
        waited, self._waiting = False, True
        try:
            if isinstance(key := self._key(record), CoroutineType):
                waited, key = True, await key
            if isinstance(value := self._value(record), CoroutineType):
                waited, value = True, await value
            lost = waited and not await self.stream.still_has(self._in_hand)
        except DeserializationFailed as error:
            if not error.retriable:
                self._unmade = None
            raise
        finally:
            self._waiting = False
        self._unmade = None
        return None if lost else Message.of(record, cast("K", key), cast("V", value))
