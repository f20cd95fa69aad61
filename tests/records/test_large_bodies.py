"""Large bodies, which are decompressed in another thread than the event loop's."""

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from types import ModuleType
from typing import Any

import pytest

from asyncconsumer.buffer.body_cache import BodyCache
from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records.compression import AT_ONCE
from asyncconsumer.records.pauses import Pause, open_next
from asyncconsumer.testing.virtual_time import simulated
from tests.support.record_encoder import (
    Row,
    batch,
    compress,
    message,
    record,
    rows,
    wrapper,
    xerial,
)

pytestmark = pytest.mark.fast

PIECE, COUNT = AT_ONCE // 3, 4  # the size of a record, and the records of a body
EVERYTHING = 63
DEADLINE = 30.0  # seconds, reached only by a failing test


def large_rows(first: int = 0) -> list[Row]:
    return [Row(first + i, b"%d" % i + bytes(PIECE)) for i in range(COUNT)]


def large(first: int = 0, codec: int = 4) -> bytes:
    return batch(large_rows(first), codec=codec)


def by_java(first: int) -> bytes:
    body = xerial(b"".join(record(row, first, 0) for row in large_rows(first)))
    return batch(body, base=first, codec=2, count=COUNT, delta=COUNT - 1)


def message_set(first: int, codec: int, magic: int, *, checked: bool = True) -> bytes:
    """Return a wrapper. Without `checked`, it has the wrong lz4 checksum of old clients."""
    base = 0 if magic else first
    inner = b"".join(
        message(base + i, row.value, magic=magic) for i, row in enumerate(large_rows(first))
    )
    value = bytearray(compress(codec, inner))
    if not checked:
        value[6 + (8 if value[4] & 8 else 0)] ^= 0xFF
    return wrapper(b"", first + COUNT - 1, codec=codec, magic=magic, value=bytes(value))


def slow_gzip(first: int) -> bytes:
    """Return a batch with a large compressed and a small decompressed size."""
    noise = bytes(i * i * 31 >> 3 & 0xFF for i in range(200_000))
    body = gzip.compress(
        b"".join(record(Row(first + i, noise), first, 0) for i in range(COUNT)), compresslevel=0
    )
    return batch(body, base=first, codec=1, count=COUNT, delta=COUNT - 1)


CASES = {
    "gzip": lambda first: large(first, 1),
    "snappy": lambda first: large(first, 2),
    "snappy, xerial": by_java,
    "lz4": lambda first: large(first, 3),
    "zstd": lambda first: large(first, 4),
    "gzip, magic 0": lambda first: message_set(first, 1, 0),
    "snappy, magic 0": lambda first: message_set(first, 2, 0),
    "lz4 without header check, magic 0": lambda first: message_set(first, 3, 0, checked=False),
    "gzip, magic 1": lambda first: message_set(first, 1, 1),
    "snappy, magic 1": lambda first: message_set(first, 2, 1),
    "lz4, magic 1": lambda first: message_set(first, 3, 1),
    "gzip that does not compress": slow_gzip,
}


class Cache(BodyCache):
    """A body cache that records the decompressing threads, and lets a test block them."""

    def __init__(self, limit: int = 2**40) -> None:
        super().__init__(limit)
        self.threads: list[int] = []
        self.entered = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def make_room(self, reader: Any) -> None:
        if threading.get_ident() not in self.loops:
            self.entered.set()
            assert self.may_go_on.wait(DEADLINE)
        super().make_room(reader)

    def hold(self, reader: Any, size: int, again: bool) -> int:
        self.threads.append(threading.get_ident())
        return super().hold(reader, size, again)

    @property
    def loops(self) -> set[int]:
        return {threading.main_thread().ident or 0}

    @property
    def on_loop(self) -> int:
        return sum(thread in self.loops for thread in self.threads)

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Block decompressing threads until the end of the block."""
        self.may_go_on.clear()
        try:
            yield
        finally:
            self.may_go_on.set()

    async def until_stopped(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while not self.entered.is_set():
                await asyncio.sleep(0.001)


@pytest.fixture
def cache() -> Iterator[Cache]:
    made = Cache()
    yield made
    made.may_go_on.set()
    for thread in threading.enumerate():
        if thread.name == "asyncconsumer-decompress":
            thread.join(DEADLINE)


def of(decoder: ModuleType, data: Any, **options: Any) -> Any:
    return decoder.Records(data, topic="t", partition=0, **options)


def stream_of(decoder: ModuleType, *sets: Any) -> Any:
    waiting = list(sets)

    async def refill() -> Any:
        return waiting.pop(0) if waiting else None

    return decoder.AsyncRecords(refill)


def seen(result: Any) -> tuple[object, ...]:
    return result.offset, result.timestamp, result.timestamp_type, result.key, result.value


async def read(stream: Any) -> list[tuple[object, ...]]:
    return [seen(result) async for result in stream]


async def in_parts(records: Any, parts: list[list[Any]]) -> None:
    """Read parts like `chunks()`, each with a plain `for`."""
    more = True
    while more:
        await open_next(records)
        parts.append([seen(record) for record in records])
        more = bool(records.paused)


# --- every codec and framing ----------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
async def test_records_are_decompressed_off_the_loop(
    decoder: ModuleType, cache: Cache, case: str
) -> None:
    data = CASES[case](0) + CASES[case](COUNT)
    expected = list(map(seen, of(decoder, data)))
    assert len(expected) == 2 * COUNT
    assert await read(stream_of(decoder, of(decoder, data, bodies=cache))) == expected
    assert len(cache.threads) == 2
    assert cache.on_loop == 0


@pytest.mark.parametrize("case", CASES)
async def test_evicted_bodies_are_decompressed_again_off_the_loop(
    decoder: ModuleType, cache: Cache, case: str
) -> None:
    expected = list(map(seen, of(decoder, CASES[case](0))))
    records = of(decoder, CASES[case](0), bodies=cache)
    got = []
    async for result in stream_of(decoder, records):
        got.append(seen(result))
        assert records.evict() or len(got) == COUNT
    assert got == expected
    assert len(cache.threads) >= COUNT
    assert cache.on_loop == 0


@pytest.mark.parametrize("case", CASES)
async def test_a_plain_for_iterates_over_parts(
    decoder: ModuleType, cache: Cache, case: str
) -> None:
    data = b"".join(CASES[case](COUNT * n) for n in range(3))
    parts: list[list[Any]] = []
    await in_parts(of(decoder, data, bodies=cache), parts)
    assert [len(part) for part in parts] == [COUNT] * 3
    assert list(chain(*parts)) == list(map(seen, of(decoder, data)))
    assert cache.on_loop == 0


async def test_the_event_loop_runs_during_decompression(decoder: ModuleType, cache: Cache) -> None:
    """The thread waits for a heartbeat, which would never be sent while the loop is blocked."""
    beats = 0

    async def heartbeat() -> None:
        nonlocal beats
        await cache.until_stopped()
        for _ in range(10):
            await asyncio.sleep(0)
            beats += 1
        cache.may_go_on.set()

    async with cache.stopped(), asyncio.TaskGroup() as group:
        group.create_task(heartbeat())
        assert len(await read(stream_of(decoder, of(decoder, large(), bodies=cache)))) == COUNT
        assert beats == 10


async def test_small_bodies_are_decompressed_on_the_loop(decoder: ModuleType, cache: Cache) -> None:
    data = b"".join(batch(rows(20, 20 * codec), codec=codec) for codec in (1, 2, 3, 4))
    assert len(await read(stream_of(decoder, of(decoder, data, bodies=cache)))) == 80
    assert len(cache.threads) == cache.on_loop == 4


async def test_skipped_bodies_are_not_decompressed(decoder: ModuleType, cache: Cache) -> None:
    data = large() + batch(rows(1, COUNT))
    read_on = of(decoder, data, bodies=cache, offset=COUNT)
    assert [results[0] for results in await read(stream_of(decoder, read_on))] == [COUNT]
    assert cache.threads == []


# --- cancellation and close ----------------------------------------------------------------------


async def test_a_cancelled_wait_loses_no_record(decoder: ModuleType, cache: Cache) -> None:
    records = of(decoder, large() + large(COUNT), bodies=cache)
    stream = stream_of(decoder, records)
    async with cache.stopped():
        for _ in range(3):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(anext(stream))
                await cache.until_stopped()
                await asyncio.sleep(0)
                task.cancel()
            assert task.cancelled()
            assert (records.next_offset, stream.last_offset) == (0, -1)
            assert not records.evict()
    assert [results[0] for results in await read(stream)] == list(range(2 * COUNT))
    assert len(cache.threads) == 2  # the first thread was joined
    assert cache.on_loop == 0


async def test_the_thread_ends_although_no_task_waits(decoder: ModuleType, cache: Cache) -> None:
    stream = stream_of(decoder, of(decoder, large(), bodies=cache))
    async with cache.stopped(), asyncio.TaskGroup() as group:
        task = group.create_task(anext(stream))
        await cache.until_stopped()
        task.cancel()
    async with asyncio.timeout(DEADLINE):
        while not cache.threads:
            await asyncio.sleep(0.001)
    assert (await anext(stream)).offset == 0
    assert len(cache.threads) == 1


async def test_records_may_be_closed_while_the_thread_reads(
    decoder: ModuleType, cache: Cache
) -> None:
    data = bytearray(large() + large(COUNT))
    records = of(decoder, data, bodies=cache)
    stream = stream_of(decoder, records)
    async with asyncio.TaskGroup() as group, cache.stopped():
        waiting = group.create_task(anext(stream, None))
        await cache.until_stopped()
        records.close()
        records.close()
        with pytest.raises(BufferError):
            data.append(0)  # the thread reads from the buffer
        assert list(records) == []
        assert not records.paused
    assert waiting.result() is None
    data.append(0)
    assert cache.size == 0
    assert records.take_columns(EVERYTHING, 100, 10**9, 1) is None


async def test_tables_wait_for_the_thread(decoder: ModuleType, cache: Cache) -> None:
    records = of(decoder, batch(rows(3)) + large(3) + large(3 + COUNT), bodies=cache)
    await open_next(records)
    assert records.take_columns(EVERYTHING, 100, 10**9, 1)[0] == 3
    assert records.paused == Pause.FOR_BODY
    async with cache.stopped(), asyncio.TaskGroup() as group:
        task = group.create_task(open_next(records))
        await cache.until_stopped()
        assert records.take_columns(EVERYTHING, 100, 10**9, 1) is None
        assert records.paused == Pause.FOR_BODY
        cache.may_go_on.set()
        await task
    counts = [records.take_columns(EVERYTHING, 100, 10**9, 1)[0]]
    await open_next(records)
    counts.append(records.take_columns(EVERYTHING, 100, 10**9, 1)[0])
    assert counts == [COUNT, COUNT]
    assert cache.on_loop == 0


async def test_direct_reads_during_decompression_are_refused(
    decoder: ModuleType, cache: Cache
) -> None:
    records = of(decoder, large(), bodies=cache)
    async with asyncio.TaskGroup() as group, cache.stopped():
        group.create_task(cache.prepare(records))
        await cache.until_stopped()
        with pytest.raises(RuntimeError, match="another thread"):
            next(records)
        with pytest.raises(RuntimeError, match="another thread"):
            records.prepare()
    assert next(records).offset == 0


# --- several readers ------------------------------------------------------------------------------


async def test_readers_that_evict_each_other_make_progress(decoder: ModuleType) -> None:
    cache = Cache(limit=1)
    streams = [stream_of(decoder, of(decoder, large(), bodies=cache)) for _ in range(3)]
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        tasks = [group.create_task(read(stream)) for stream in streams]
    expected = list(map(seen, of(decoder, large())))
    assert [task.result() for task in tasks] == [expected] * 3
    assert cache.on_loop == 0


async def test_bodies_are_decompressed_one_at_a_time(decoder: ModuleType, cache: Cache) -> None:
    streams = [stream_of(decoder, of(decoder, large(), bodies=cache)) for _ in range(3)]
    async with asyncio.TaskGroup() as group, cache.stopped():
        tasks = [group.create_task(anext(stream)) for stream in streams]
        await cache.until_stopped()
        for _ in range(10):
            await asyncio.sleep(0)
        running = [t for t in threading.enumerate() if t.name == "asyncconsumer-decompress"]
        assert len(running) == 1
    assert [task.result().offset for task in tasks] == [0, 0, 0]


# --- errors ---------------------------------------------------------------------------------------


async def test_corruption_in_the_thread_is_raised_by_the_reader(
    decoder: ModuleType, cache: Cache
) -> None:
    body = bytearray(compress(1, bytes(2 * AT_ONCE)))
    body[-8] ^= 1  # of the checksum
    bad = batch(bytes(body), base=1, codec=1, count=1)
    records = of(decoder, batch(rows(1)) + bad + large(2), bodies=cache)
    stream = stream_of(decoder, records)
    assert (await anext(stream)).offset == 0
    for _ in range(2):
        with pytest.raises(CorruptRecords, match="bad gzip data") as caught:
            await anext(stream)
        assert (caught.value.offset, caught.value.resume) == (1, 2)
    assert records.skip_corrupt() == 2
    assert [results[0] for results in await read(stream)] == [2, 3, 4, 5]
    assert cache.on_loop == 0


async def test_a_wrong_declared_size_is_detected(decoder: ModuleType, cache: Cache) -> None:
    body = bytearray(compress(1, bytes(2 * AT_ONCE)))
    body[-4:] = (1000).to_bytes(4, "little")
    records = of(decoder, batch(bytes(body), codec=1, count=1), bodies=cache)
    records.cooperative = True
    assert not records.open_next()
    assert records.paused == Pause.FOR_BODY
    with pytest.raises(CorruptRecords, match="bad gzip data"):
        await read(stream_of(decoder, records))


async def test_other_errors_than_corruption_lose_no_record(
    decoder: ModuleType, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(decoder, of(decoder, large(), bodies=cache))

    def fail(_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(cache, "make_room", fail)
        with pytest.raises(MemoryError):
            await anext(stream)
    assert len(await read(stream)) == COUNT


# --- others ---------------------------------------------------------------------------------------


def test_a_plain_for_without_an_event_loop_decompresses_directly(
    decoder: ModuleType, cache: Cache
) -> None:
    """A plain `for` has no task that could wait."""
    records = of(decoder, large() + large(COUNT), bodies=cache)
    assert [record.offset for record in records] == list(range(2 * COUNT))
    assert len(cache.threads) == cache.on_loop == 2


async def test_large_bodies_are_read_without_a_cache(decoder: ModuleType) -> None:
    assert len(await read(stream_of(decoder, of(decoder, large())))) == COUNT


def test_a_simulation_has_no_threads(decoder: ModuleType, cache: Cache) -> None:
    async def check() -> None:
        assert len(await read(stream_of(decoder, of(decoder, large(), bodies=cache)))) == COUNT

    simulated([0])(check)()
    assert len(cache.threads) == cache.on_loop == 1


async def test_open_next_can_be_called_repeatedly(decoder: ModuleType, cache: Cache) -> None:
    records = of(decoder, large() + batch(rows(2, COUNT)), bodies=cache)
    got: list[int] = []
    for _ in range(COUNT + 2):
        for _ in range(50):
            await open_next(records)
            assert records.next_offset == len(got)
        got.append(next(records).offset)
    await open_next(records)
    assert got == list(range(COUNT + 2))
    assert (next(records, None), records.paused) == (None, Pause.NONE)
