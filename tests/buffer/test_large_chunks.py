"""Chunks of large bodies: delivered in parts, decompressed off the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from asyncconsumer.buffer.body_cache import BodyCache
from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.fetch.direct.partition_stream import PartitionStream
from asyncconsumer.handlers.stream import HandlerStream
from asyncconsumer.records import decoding
from asyncconsumer.records.compression import AT_ONCE
from asyncconsumer.streams.stream import Stream
from tests.support.chunks import A
from tests.support.fake_handlers import Bench
from tests.support.record_encoder import Row, batch

pytestmark = pytest.mark.fast

BODIES, COUNT = 3, 2
ALL = BODIES * COUNT


class Cache(BodyCache):
    """A body cache that counts the bodies decompressed in the thread of the event loop."""

    def __init__(self) -> None:
        super().__init__(2**40)
        self.on_loop = self.elsewhere = 0

    def hold(self, reader: Any, size: int, again: bool) -> int:
        here = threading.current_thread() is threading.main_thread()
        self.on_loop += here
        self.elsewhere += not here
        return super().hold(reader, size, again)


def records_of(cache: BodyCache, first: int = 0) -> decoding.Records:
    data = b"".join(
        batch([Row(first + COUNT * n + i, bytes(AT_ONCE)) for i in range(COUNT)], codec=4)
        for n in range(BODIES)
    )
    return decoding.Records(data, topic="t", partition=0, offset=first, bodies=cache)


def chunk(cache: BodyCache, first: int = 0) -> Chunk:
    return Chunk(A, first, first + ALL, 1, 5, 1000, records_of(cache, first))


def stream_of(cache: BodyCache, kind: Any = Stream) -> tuple[Channel, Any]:
    channel = Channel(Budget(10**6))
    for first in (0, ALL):
        channel.push(chunk(cache, first))
    channel.finish()
    return channel, kind(channel)


async def test_a_part_is_acknowledged_when_the_next_part_is_requested() -> None:
    cache = Cache()
    channel, stream = stream_of(cache)
    progress, parts = [], []
    async for records in stream.chunks():
        progress.append(stream.finished()[A])
        parts.append([record.offset for record in records])
        assert stream.is_unacknowledged
    assert parts == [list(range(n, n + COUNT)) for n in range(0, 2 * ALL, COUNT)]
    assert progress == list(range(0, 2 * ALL, COUNT))
    assert (stream.finished(), channel.buffered_bytes) == ({A: 2 * ALL}, 0)
    assert (cache.on_loop, cache.elsewhere) == (0, 2 * BODIES)


async def test_a_reader_that_leaves_a_part_early_acknowledges_the_chunk() -> None:
    cache = Cache()
    _, stream = stream_of(cache)
    firsts = [next(records).offset async for records in stream.chunks()]
    assert firsts == [0, ALL]


async def test_unacknowledged_records_start_at_the_last_delivered_part() -> None:
    _, stream = stream_of(Cache())
    chunks = stream.chunks()
    for _ in range(2):
        list(await anext(chunks))
    assert stream.unacknowledged() == {A: COUNT}


async def test_a_partition_is_held_between_two_parts() -> None:
    channel, stream = stream_of(Cache())
    chunks = stream.chunks()
    assert len(list(await anext(chunks))) == COUNT
    stream.hold([A])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(anext(chunks))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        assert stream.finished() == {A: COUNT}
        stream.release([A])
        assert [record.offset for record in await task] == [2, 3]
    assert channel.buffered_bytes == 2000


async def test_a_reader_is_cancelled_while_a_part_is_decompressed() -> None:
    cache = Cache()
    _, stream = stream_of(cache)
    chunks = stream.chunks()
    got: list[int] = []
    for _ in range(2 * BODIES):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(anext(chunks))
            await asyncio.sleep(0)
            task.cancel()
        if task.cancelled():
            assert stream.finished() == {A: len(got)}
            got += [record.offset for record in await anext(chunks)]
    assert got == list(range(2 * ALL))
    assert (cache.on_loop, cache.elsewhere) == (0, 2 * BODIES)


async def test_a_partition_is_lost_while_a_part_is_decompressed() -> None:
    channel, stream = stream_of(Cache())
    chunks = stream.chunks()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(anext(chunks, None))
        await asyncio.sleep(0)
        stream.forget(A)
        channel.drop(A)
        assert await task is None
    assert channel.buffered_bytes == 0


async def test_arrow_tables_are_decompressed_in_the_thread() -> None:
    cache = Cache()
    _, stream = stream_of(cache)
    counts = [table.num_rows async for table in stream.arrow()]
    assert sum(counts) == 2 * ALL
    assert len(counts) >= 2 * BODIES
    assert cache.on_loop == 0


class Reader:
    """The part of a `PartitionReader` that a stream needs."""

    def __init__(self, *sets: decoding.Records) -> None:
        self._sets = list(sets)
        self.high_watermark = 0

    async def next(self) -> decoding.Records | None:
        return self._sets.pop(0) if self._sets else None

    def close(self) -> None:
        self._sets.clear()


def partition_stream(cache: BodyCache) -> PartitionStream:
    async def open_reader() -> Any:
        return Reader(records_of(cache), records_of(cache, ALL))

    return PartitionStream(open_reader, lambda: None)


@pytest.mark.parametrize("way", ["records", "chunks", "arrow"])
async def test_a_partition_is_read_without_a_group(way: str) -> None:
    cache, got = Cache(), []
    stream = partition_stream(cache)
    if way == "records":
        got = [record.offset async for record in stream]
    elif way == "chunks":
        async for records in stream.chunks():
            got += [record.offset for record in records]
    else:
        async for table in stream.arrow(columns=["offset"]):
            got += table.column("offset").to_pylist()
    assert got == list(range(2 * ALL))
    assert (cache.on_loop, cache.elsewhere) == (0, 2 * BODIES)


async def first(chunks: AsyncIterator[decoding.Records]) -> decoding.Records:
    return await anext(chunks)


async def test_a_cancelled_wait_for_a_chunk_without_a_group_loses_no_record() -> None:
    stream, got = partition_stream(Cache()), []
    for _ in range(2 * BODIES):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(first(stream.chunks()))
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
        async for records in stream.chunks():
            got += [record.offset for record in records]
            break
    assert got == list(range(2 * ALL))


async def test_handlers_read_large_chunks() -> None:
    cache, bench = Cache(), Bench(max_in_flight_bytes=2**30)
    _, stream = stream_of(
        cache, lambda channel: HandlerStream(lambda _: bench.queue, None, channel, None)
    )
    stream.begin(A, 0)
    await stream.pump(skip_corrupt=lambda _: False, seek=lambda *_: None)
    assert stream.position(A) == 2 * ALL
    assert (cache.on_loop, cache.elsewhere) == (0, 2 * BODIES)
