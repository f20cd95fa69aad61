"""Objects that the decoder reuses: ints and bytes of a record, and the StopIteration of a step."""

import gc
import sys
import tracemalloc
from types import ModuleType
from typing import Any

import pytest

from tests.support.record_encoder import batch, rows

pytestmark = pytest.mark.fast


def stream_of(decoder: ModuleType, data: bytes) -> Any:
    remaining = [decoder.Records(data, topic="t", partition=0)]

    async def refill() -> object:
        return remaining.pop() if remaining else None

    return decoder.AsyncRecords(refill)


def stop_of(step: Any) -> StopIteration:
    with pytest.raises(StopIteration) as raised:
        step.send(None)
    return raised.value


def test_a_retained_stop_iteration_keeps_its_value(decoder: ModuleType) -> None:
    stream = stream_of(decoder, batch(rows(4)))
    stops = [stop_of(stream.__anext__()) for _ in range(4)]
    assert [stop.value.offset for stop in stops] == [0, 1, 2, 3]
    assert len(set(map(id, stops))) == len(stops)


def test_a_caught_stop_iteration_is_not_reused(decoder: ModuleType) -> None:
    stream = stream_of(decoder, batch(rows(4)))
    try:
        stream.__anext__().send(None)
    except StopIteration as stop:  # dropped immediately, unlike with `pytest.raises`
        stop.add_note("seen")
    later = stop_of(stream.__anext__())
    assert later.value.offset == 1
    assert not hasattr(later, "__notes__")


async def test_a_record_is_referenced_by_the_loop_only(decoder: ModuleType) -> None:
    (expected,) = {
        sys.getrefcount(record)
        for record in decoder.Records(batch(rows(4)), topic="t", partition=0)
    }
    counts = {sys.getrefcount(record) async for record in stream_of(decoder, batch(rows(4)))}
    assert counts == {expected}


@pytest.mark.parametrize("first", [0, 255, 1023, 2**30 - 3, 2**60 - 3])
async def test_retained_offsets_keep_their_values(decoder: ModuleType, first: int) -> None:
    data = batch(rows(6, first))
    offsets = []
    async for record in stream_of(decoder, data):
        offsets.append(record.offset)  # noqa: PERF401 - the record must be dropped each time
    assert offsets == list(range(first, first + 6))


@pytest.mark.parametrize("first", [0, 255, 1023, 2**30 - 3, 2**60 - 3])
async def test_offsets_of_dropped_records_are_correct(decoder: ModuleType, first: int) -> None:
    data = batch(rows(6, first))
    differences = {record.offset - first async for record in stream_of(decoder, data)}
    assert differences == set(range(6))


@pytest.mark.parametrize("size", [1, 512, 513, 1024, 16_384, 16_385])
async def test_retained_values_keep_their_bytes(decoder: ModuleType, size: int) -> None:
    expected = rows(12, size=size)
    values = []
    async for record in stream_of(decoder, batch(expected)):
        values.append(record.value)  # noqa: PERF401 - the record must be dropped each time
    assert values == [row.value for row in expected]


@pytest.mark.parametrize("size", [1, 512, 513, 1024, 16_384, 16_385])
async def test_values_of_dropped_records_are_correct(decoder: ModuleType, size: int) -> None:
    expected = rows(12, size=size)
    seen = [record.value[:] + b"." async for record in stream_of(decoder, batch(expected))]
    assert seen == [(row.value or b"") + b"." for row in expected]


def test_large_values_of_dropped_records_are_freed(decoder: ModuleType) -> None:
    data = batch(rows(600, size=16_384))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        list(decoder.Records(data, topic="t", partition=0))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 600 * 16_384 / 10
