"""Buffers: how long they are held, and the absence of leaks."""

import gc
import subprocess
import sys
import tracemalloc
import weakref
from collections.abc import Callable
from types import ModuleType

import psutil
import pytest

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records import decoding
from tests.records.test_record_set import read
from tests.support.record_encoder import Row, batch, compress, message, rows, wrapper

pytestmark = pytest.mark.fast

HEADERS = (("a", b"x" * 50), ("b", None))


def is_held(buffer: bytearray) -> bool:
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False


@pytest.mark.parametrize("codec", range(5))
def test_the_buffer_is_held_during_reading_and_released_afterwards(
    decoder: ModuleType, codec: int
) -> None:
    data = bytearray(batch(rows(5), codec=codec))
    records = read(decoder, data)
    retained = [next(records)]
    assert is_held(data)
    retained.extend(records)
    assert not is_held(data)
    data[:] = b"\0" * len(data)
    assert [(k.offset, k.key) for k in retained] == [(r.offset, r.key) for r in rows(5)]


def test_the_buffer_is_released_by_close_and_with_the_iterator(decoder: ModuleType) -> None:
    data = bytearray(batch(rows(5)))
    records = read(decoder, data)
    next(records)
    records.close()
    assert not is_held(data)
    records = read(decoder, data)
    next(records)
    del records
    assert not is_held(data)


def test_the_buffer_is_released_after_corruption_with_an_unknown_end(decoder: ModuleType) -> None:
    data = bytearray(batch(rows(5)) + batch(rows(1, 5), magic=9))
    records = read(decoder, data)
    with pytest.raises(CorruptRecords):
        list(records)
    assert not is_held(data)


def test_a_cycle_through_the_error_is_collected(decoder: ModuleType) -> None:
    def leave_a_cycle() -> "weakref.ref[CorruptRecords]":
        records = read(decoder, bytearray(batch(rows(1), crc=1)))
        try:
            next(records)
        except CorruptRecords as error:
            return weakref.ref(
                error
            )  # the traceback references this frame, which references the records
        raise AssertionError

    gc.collect()
    gone = leave_a_cycle()
    gc.collect()
    assert gone() is None


def whole(decoder: ModuleType) -> None:
    for record in read(decoder, batch([Row(0, headers=HEADERS), *rows(5, 1)], codec=4)):
        assert record.value is not None
        repr(record)
        hash(record)


def half(decoder: ModuleType) -> None:
    next(read(decoder, batch(rows(50), codec=1), aborted=[(1, 2)]))


def corrupt(decoder: ModuleType) -> None:
    bad = batch(rows(5)) + batch(b"junk", base=5, codec=1, count=1) + batch(rows(1, 6))
    records = read(decoder, bad)
    for _ in range(2):
        with pytest.raises(CorruptRecords):
            list(records)
    records.skip_corrupt()
    list(records)


def old(decoder: ModuleType) -> None:
    list(read(decoder, wrapper(message(0) + message(1), 5, codec=3)))


def refused(decoder: ModuleType) -> None:
    with pytest.raises(TypeError):
        decoder.Record("t", 0, 0, headers=[("a", b"1"), ("b", 2)])
    with pytest.raises(TypeError):
        decoder.Records(b"", topic="t", partition=0, aborted=[(1, 2), (3,)])
    assert decoder.Record("t", 0, 0, headers=HEADERS) == decoder.Record("t", 0, 0, headers=HEADERS)


def _leaked_by(work: Callable[[], None]) -> tuple[int, int]:
    """Return how many bytes and blocks remain after many calls."""
    gc.collect()
    memory, blocks = tracemalloc.get_traced_memory()[0], sys.getallocatedblocks()
    for _ in range(400):
        work()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - memory, sys.getallocatedblocks() - blocks


@pytest.mark.parametrize("work", [whole, half, corrupt, old, refused])
def test_repeated_decoding_leaks_no_memory(
    decoder: ModuleType, work: Callable[[ModuleType], None]
) -> None:
    tracemalloc.start()
    try:
        rounds = [_leaked_by(lambda: work(decoder)) for _ in range(4)]
        # the first round fills free lists, and other code may do so at any time; a leak is in
        # all rounds
        assert min(memory for memory, _ in rounds) < 40_000
        assert min(blocks for _, blocks in rounds) < 200  # after 400 calls
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_decompression_bomb_takes_no_more_than_the_limit(decoder: ModuleType, codec: int) -> None:
    bomb = batch(compress(codec, b"\0" * (256 << 20)), codec=codec, count=1)
    gc.collect()
    before = psutil.Process().memory_info().rss
    peak = 0

    def watched() -> None:
        nonlocal peak
        with pytest.raises(CorruptRecords, match="max_decompressed_bytes"):
            next(read(decoder, bomb, max_decompressed_bytes=16 << 20))
        peak = psutil.Process().memory_info().rss

    for _ in range(3):
        watched()
    assert peak - before < 40 << 20


CYCLES_WITH_MEMORYVIEWS = """
import gc, sys
from asyncconsumer.records import decoding
from tests.support.record_encoder import batch, rows
_, decoder = decoding.load(sys.argv[1])
buffer = bytearray(batch(rows(5)))
gc.collect()
gc.disable()
for _ in range(20):
    view = memoryview(buffer)[:]  # made first, so the collector takes it apart first
    records = decoder.Records(view, topic="t", partition=0)
    next(records)
    cycle = [view, records]
    cycle.append(cycle)
    del view, records, cycle
gc.collect()
buffer.append(0)  # raises while anybody holds it
"""


@pytest.mark.parametrize("name", decoding.available())
def test_a_cycle_with_the_read_memoryview_is_collected(name: str) -> None:
    """The test runs in a separate process, because a failure crashes."""
    command = [sys.executable, "-c", CYCLES_WITH_MEMORYVIEWS, name]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("size", [0, 1, 5000, 70_000, 3_000_000])
def test_room_has_the_requested_size_and_keeps_its_bytes(decoder: ModuleType, size: int) -> None:
    for byte in (b"a", b"b"):
        room = memoryview(decoder.room_for(size))
        assert len(room) == size
        room[:] = byte * size
        other = memoryview(decoder.room_for(size))
        other[:] = b"-" * size
        assert bytes(room) == byte * size


def test_a_negative_size_of_room_is_refused(decoder: ModuleType) -> None:
    with pytest.raises(ValueError, match="negative"):
        decoder.room_for(-1)
