"""Pauses of a reader without waits, after many records or much decompression."""

import asyncio
from types import ModuleType
from typing import Any

import pytest

from asyncconsumer.records.pauses import RECORDS_BETWEEN_PAUSES, open_next
from tests.support.record_encoder import Row, batch, compress, record, rows

pytestmark = pytest.mark.fast

LARGE = 5 * 2**20


def stream_of(decoder: ModuleType, data: bytes, **options: Any) -> Any:
    sets = [decoder.Records(data, topic="t", partition=0, **options)]

    async def refill() -> Any:
        return sets.pop() if sets else None

    return decoder.AsyncRecords(refill)


def large_batches(count: int) -> bytes:
    """Return batches of one record each, small if compressed and large if decompressed."""
    return b"".join(batch([Row(i, bytes(LARGE))], codec=4) for i in range(count))


async def turns_while(reading: Any) -> tuple[int, Any]:
    """Return how many turns the event loop had during a read."""
    turns = 0

    async def read() -> Any:
        await asyncio.sleep(0)  # an eager task starts within create_task
        return await reading

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
    return turns, task.result()


async def offsets(stream: Any) -> list[int]:
    return [result.offset async for result in stream]


async def test_a_reader_pauses_after_much_decompression(decoder: ModuleType) -> None:
    turns, read = await turns_while(offsets(stream_of(decoder, large_batches(8))))
    assert read == list(range(8))
    assert turns >= 8


async def test_a_reader_pauses_after_many_records_of_one_set(decoder: ModuleType) -> None:
    data = batch(rows(3 * RECORDS_BETWEEN_PAUSES + 5, size=1))
    turns, read = await turns_while(offsets(stream_of(decoder, data)))
    assert read == list(range(3 * RECORDS_BETWEEN_PAUSES + 5))
    assert turns >= 4
    few, _ = await turns_while(offsets(stream_of(decoder, batch(rows(1000)))))
    assert few < 4


async def test_a_reader_pauses_between_skipped_batches(decoder: ModuleType) -> None:
    """The headers of these batches reach beyond the requested offset, their records do not."""
    body = compress(4, record(Row(0, bytes(LARGE)), 0, 0))
    data = b"".join(
        batch(body, codec=4, count=1, delta=100 + i, first_timestamp=0) for i in range(8)
    )
    data += batch([Row(200)])
    turns, read = await turns_while(offsets(stream_of(decoder, data, offset=50)))
    assert read == [200]
    assert turns >= 8


async def test_a_cancellation_at_a_pause_loses_no_record(decoder: ModuleType) -> None:
    stream = stream_of(decoder, large_batches(4))
    read: list[int] = []

    async def take() -> None:
        while (result := await anext(stream, None)) is not None:
            read.append(result.offset)

    cancelled = 0
    while len(read) < 4:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(take())
            await asyncio.sleep(0)
            task.cancel()
            cancelled += 1
    assert read == [0, 1, 2, 3]
    assert cancelled >= 2  # an eager task reads another record before it is cancelled


async def test_a_second_task_is_refused_at_a_pause(decoder: ModuleType) -> None:
    stream = stream_of(decoder, large_batches(3))
    await anext(stream)
    step = stream.__anext__().__await__()
    assert step.send(None) is None  # like asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task already waits"):
        await anext(stream)
    with pytest.raises(StopIteration) as caught:
        step.send(None)
    assert caught.value.value.offset == 1
    assert (await anext(stream)).offset == 2


async def test_the_deadline_is_checked_after_a_pause(decoder: ModuleType) -> None:
    now, asked = 0.0, 0
    result = decoder.Records(large_batches(3), topic="t", partition=0)

    async def refill() -> Any:
        nonlocal asked
        asked += 1
        return result if asked < 3 else None

    stream = decoder.AsyncRecords(refill, lambda: now)
    await anext(stream)
    step = stream.__anext__().__await__()
    assert step.send(None) is None
    stream.deadline = -1.0  # the delivered record was lost meanwhile
    with pytest.raises(StopIteration) as caught:
        step.send(None)
    assert asked == 2
    assert caught.value.value.offset == 1


async def test_a_reader_of_tables_pauses_between_them(decoder: ModuleType) -> None:
    result = decoder.Records(large_batches(2), topic="t", partition=0)
    next(result)
    assert result.worked > LARGE
    turns, _ = await turns_while(open_next(result))
    assert turns >= 2
    assert next(result).offset == 1
