"""A consumer's stream as its user reads it: with deserializers and interceptors, if there are."""

from collections.abc import AsyncIterator
from typing import Any, Generic, cast

from asyncconsumer.consumer.interceptors import Interceptors
from asyncconsumer.errors import DeserializationFailed
from asyncconsumer.streams.messages import Decoder, K, Message, V
from asyncconsumer.streams.stream import Stream
from asyncconsumer.wire.accel import Record


class Reading(Generic[K, V]):
    """An async iterator of messages. Without anything to do it is that of the stream itself."""

    def __init__(
        self,
        stream: Stream,
        key: Decoder[K] | None,
        value: Decoder[V] | None,
        interceptors: Interceptors,
    ) -> None:
        self._records = aiter(stream)
        self._key = key
        self._value = value
        self._interceptors = interceptors

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        if self._key is None and self._value is None and not self._interceptors:
            return cast("AsyncIterator[Message[K, V]]", self._records)
        return self

    async def __anext__(self) -> Message[K, V]:
        """The next one. Who gives up waiting for it, or is timed out, can ask again."""
        record = self._interceptors.on_consume(await anext(self._records))
        if self._key is None and self._value is None:
            return cast("Message[K, V]", record)
        return Message.of(
            record,
            _deserialized(record, "key", record.key, self._key),
            _deserialized(record, "value", record.value, self._value),
        )


def _deserialized(
    record: Record, part: str, data: bytes | None, decoder: Decoder[Any] | None
) -> Any:  # noqa: ANN401 - whatever the decoder makes
    if data is None or decoder is None:
        return data
    try:
        return decoder(data)
    except Exception as error:
        place = f"{record.topic}[{record.partition}]@{record.offset}"
        raise DeserializationFailed(part, record, place, repr(error)) from error
