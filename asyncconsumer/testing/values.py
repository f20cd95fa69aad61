"""Values that tests send and read: JSON, text or bytes."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Self, TypeAlias

from asyncconsumer.records.batch_encoder import BatchProducer, encode_batch
from asyncconsumer.records.decoding import Record, RecordEncoder, murmur2
from asyncconsumer.records.message import Part
from asyncconsumer.records.record import Headers
from asyncconsumer.serdes import make_serializer
from asyncconsumer.serdes.types import RecordContext

HeadersToSend: TypeAlias = (
    Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
)

_POSITIVE: Final = 0x7FFFFFFF
_serialize: Final = make_serializer(None)


@dataclass(frozen=True, slots=True)
class PublishedRecord:
    """A record of a topic, as `published` and `read` return it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None = field(repr=False)
    value: bytes | None
    headers: Headers = ()

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return a decoded record as plain values."""
        return cls(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            record.headers,
        )

    def json(self) -> Any:  # noqa: ANN401 - any JSON
        """Return the value, parsed as JSON."""
        return json.loads(self.value or b"null")

    def text(self) -> str:
        """Return the value as UTF-8 text."""
        return (self.value or b"").decode()

    def header(self, name: str) -> bytes | None:
        """Return the last header of this name, or None."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


def encode(value: object, topic: str, part: Part) -> bytes | None:
    """Return a key or a value as bytes, as a `Producer` without serializers writes it."""
    data = _serialize(value, RecordContext(topic, part, ()))
    assert data is None or isinstance(data, bytes), "this serializer is not a coroutine"
    return data


def encode_headers(headers: HeadersToSend) -> Headers:
    """Return the headers as pairs. Values that are text are encoded as UTF-8."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
    )


def encode_batch_of_one(
    key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int
) -> bytes:
    """Return a record batch with one record, without a producer id."""
    encoder = RecordEncoder()
    encoder.append(timestamp_ms, key, value, headers)
    return encode_batch(encoder, BatchProducer())


def partition_of(key: bytes | None, count: int, partition: int | None, randomness: Random) -> int:
    """Return `partition` if it is given, otherwise the partition for the key.

    It is the one that Java's producer selects. Without a key, return a random partition.
    """
    if partition is not None:
        return partition
    return randomness.randrange(count) if key is None else (murmur2(key) & _POSITIVE) % count
