"""The records of a topic from given positions on, as values for JSON."""

import base64
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, NamedTuple, cast

from asyncconsumer.browser.positions import format_positions
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.errors import UnknownTopicOrPartition
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import TopicPartition

Encode = Callable[[Record], Any]
"""A function that returns a value for JSON, or None to leave a record out."""

BUFFER_BYTES: Final = 2**20
"""The bytes that are fetched ahead for one client."""


class RecordEvent(NamedTuple):
    """A value for a client, and the positions in the topic after it.

    The first event has positions and no value.
    """

    id: str
    value: Any


def encode_record(record: Record) -> dict[str, Any]:
    """Return a record as a dict for JSON. Bytes that are not text become ``{"base64": ...}``."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


@asynccontextmanager
async def record_events(
    topic: str,
    options: Mapping[str, Any],
    positions: Mapping[int, int] | None,
    *,
    encode: Encode,
) -> AsyncIterator[AsyncIterator[RecordEvent]]:
    """Return an async context manager that opens a topic and yields an iterator over its events.

    Reading starts at `positions`, which maps partitions to offsets, or at the end of the topic for
    None. Partitions without a position were added later, so they are read from their beginning. A
    position outside the log becomes its first or last offset.
    """
    async with Consumer(**{"max_buffered_bytes": BUFFER_BYTES, **options}) as consumer:
        partitions = await consumer.partitions_for(topic)
        if not partitions:
            raise UnknownTopicOrPartition(f"topic {topic!r}")
        starts = ends = await consumer.end_offsets(partitions)
        if positions is not None:
            first = await consumer.beginning_offsets(partitions)
            starts = {
                tp: min(max(first[tp], positions.get(tp.partition, 0)), ends[tp])
                for tp in partitions
            }
        await consumer.assign(starts)
        async with aclosing(_events(consumer, starts, encode)) as events:
            yield events


async def _events(
    consumer: Consumer[Any, Any], starts: Mapping[TopicPartition, int], encode: Encode
) -> AsyncGenerator[RecordEvent]:
    reached = {tp.partition: offset for tp, offset in starts.items()}
    yield RecordEvent(format_positions(reached), None)
    async for record in consumer:
        reached[record.partition] = record.offset + 1
        value = encode(cast("Record", record))  # without deserializers, so these are records
        if value is not None:
            yield RecordEvent(format_positions(reached), value)


def _text(value: bytes | None) -> Any:  # noqa: ANN401 - a value for JSON
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
