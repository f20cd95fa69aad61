"""Messages of a stream: errors, parked chunks and lost partitions."""

import asyncio
from typing import Any

import pytest

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.errors import DeserializationFailed
from asyncconsumer.records import decoding
from asyncconsumer.serdes.types import raise_failure
from asyncconsumer.streams.batched import BatchedStream, BatchWaits
from tests.support.chunks import A, B, chunk

pytestmark = pytest.mark.fast

WAITS = BatchWaits(None, 0.0)


def failing_at(offset: int) -> decoding.MessageBuilder:
    """Return a builder whose value deserializer fails for this offset of partition A."""

    def read(record: Any) -> int:
        if (record.partition, record.offset) == (A.partition, offset):
            raise_failure(ValueError("no"), record, "value")
        return int(record.offset)

    return decoding.MessageBuilder(value=read, value_takes_record=True)


def stream_of(builder: decoding.MessageBuilder) -> tuple[Channel, BatchedStream]:
    channel = Channel(Budget(10**6))
    stream = BatchedStream(channel)
    stream.build_messages(builder)
    channel.push(chunk(A))
    channel.push(chunk(B))
    channel.close()
    return channel, stream


@pytest.mark.parametrize("lost", [False, True])
async def test_the_error_of_a_lost_partition_is_not_raised(lost: bool) -> None:
    _, stream = stream_of(failing_at(1))
    batch = await stream.next_batch(10, WAITS)
    assert [message.offset for message in batch] == [0]
    if lost:
        stream.forget(A)
    else:
        with pytest.raises(DeserializationFailed):
            await stream.next_batch(10, WAITS)
    partitions = [message.partition for message in await stream.next_batch(10, WAITS)]
    assert partitions == [B.partition] * 3 if lost else [A.partition, *[B.partition] * 3]


async def test_a_policy_is_applied_once_to_a_record_of_a_parked_chunk() -> None:
    _, stream = stream_of(failing_at(1))
    errors: list[Exception] = []

    async def skip(error: Exception) -> None:
        stream.hold([A])
        await asyncio.sleep(0)
        errors.append(error)

    stream.build_messages(failing_at(1), skip)
    messages = aiter(stream)
    assert (await anext(messages)).offset == 0
    assert (await anext(messages)).partition == B.partition
    assert stream.position(A) == 2
    stream.release([A])
    rest = [(message.partition, message.offset) async for message in messages]
    assert rest == [(B.partition, 1), (B.partition, 2), (A.partition, 2)]
    assert len(errors) == 1


async def test_an_unreadable_record_is_acknowledged_by_the_next_request() -> None:
    _, stream = stream_of(failing_at(1))
    messages = aiter(stream)
    await anext(messages)
    with pytest.raises(DeserializationFailed):
        await anext(messages)
    assert stream.finished()[A] == 1
    assert (await anext(messages)).offset == 2
    assert stream.finished()[A] == 2
