"""The stream of the classic API, which delivers records or decoded messages."""

from collections.abc import AsyncIterator, Callable
from typing import Generic, cast

from asyncconsumer.records.decoding import Message, MessageBuilder
from asyncconsumer.records.message import K, V
from asyncconsumer.streams.stream import Stream

__all__ = ["DecodeBytes", "K", "Message", "MessageStream", "V"]

DecodeBytes = Callable[[bytes], V]
"""Decodes the bytes of a key or a value. It is not called for None, which stays None."""


class MessageStream(Generic[K, V]):
    """A stream for ``async for message in stream``, the counterpart of Kafka's KafkaStream.

    Without decoders it delivers the records themselves, which is faster. With decoders it delivers
    a `Message` for each record. Asking for the next message acknowledges the one before.
    """

    def __init__(
        self,
        stream: Stream,
        clear: Callable[[Stream], None],
        key_decoder: DecodeBytes[K] | None = None,
        value_decoder: DecodeBytes[V] | None = None,
    ) -> None:
        self.records = stream
        self._clear = clear
        if key_decoder is not None or value_decoder is not None:
            stream.build_messages(MessageBuilder(key_decoder, value_decoder))
        self._by_hand = stream.iteration(aiter(stream), self._prepare)

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        loop = self.records.iterate(aiter(self.records), self._prepare)
        return cast("AsyncIterator[Message[K, V]]", loop)

    async def __anext__(self) -> Message[K, V]:
        """Return the next message, and acknowledge the one before.

        A wait that is cancelled or timed out loses nothing.
        """
        self._by_hand.begin()
        return cast("Message[K, V]", await anext(aiter(self.records)))

    def _prepare(self, again: bool) -> None:  # noqa: FBT001 - called by the reader
        """Prepare a new iteration.

        With `again`, seek back to the records that an earlier iteration did not acknowledge.
        """
        if again and self.records.unacknowledged():
            self.clear()

    def clear(self) -> None:
        """Drop the buffered records, and fetch again from the last acknowledged offset."""
        self._clear(self.records)
