import asyncio
import contextlib
import gc
import weakref
from types import ModuleType

import pytest

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records._pure import AsyncRecords, Records
from tests.support.record_encoder import batch, rows

pytestmark = pytest.mark.fast


class Source:
    """A refill that returns record sets, raises exceptions and awaits futures of a list."""

    def __init__(self, decoder: ModuleType, *answers: object) -> None:
        self.decoder = decoder
        self.answers = list(answers)
        self.calls = 0

    async def refill(self) -> Records | None:
        self.calls += 1
        answer = self.answers[0] if self.answers else None
        if isinstance(answer, asyncio.Future):
            await answer  # a cancelled one is redelivered
        if self.answers:
            self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, bytes):
            records: Records = self.decoder.Records(answer, topic="t", partition=0)
            return records
        return await self.refill() if isinstance(answer, asyncio.Future) else None


def stream_of(decoder: ModuleType, *answers: object) -> tuple[AsyncRecords, Source]:
    source = Source(decoder, *answers)
    stream: AsyncRecords = decoder.AsyncRecords(source.refill)
    return stream, source


async def offsets(stream: AsyncRecords) -> list[int]:
    return [record.offset async for record in stream]


async def test_records_of_all_sets_are_delivered_in_order(decoder: ModuleType) -> None:
    stream, source = stream_of(decoder, batch(rows(3)), b"", batch(rows(2, 3)), batch(rows(0)))
    assert await offsets(stream) == [0, 1, 2, 3, 4]
    assert source.calls == 5


async def test_the_end_is_permanent(decoder: ModuleType) -> None:
    stream, source = stream_of(decoder, batch(rows(1)))
    await offsets(stream)
    assert await offsets(stream) == []
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert await anext(stream, "nothing") == "nothing"
    assert source.calls == 2
    assert stream.current is None


async def test_a_step_with_buffered_records_does_not_wait(decoder: ModuleType) -> None:
    stream, _ = stream_of(decoder, batch(rows(3)))
    await anext(stream)
    step = stream.__anext__()
    with pytest.raises(StopIteration) as caught:  # the result of a finished await
        step.__await__().__next__()
    assert caught.value.value.offset == 1


async def test_the_last_delivered_offset_is_known(decoder: ModuleType) -> None:
    stream, _ = stream_of(decoder, batch(rows(2, 10)), batch(rows(1, 12)))
    assert (stream.current, stream.last_offset) == (None, -1)
    seen = []
    async for record in stream:
        assert stream.current is not None
        seen.append((record.offset, stream.last_offset, stream.current.next_offset))
    assert seen == [(10, 10, 11), (11, 11, 12), (12, 12, 13)]


async def test_refill_sees_the_set_that_was_read_last(
    decoder: ModuleType,
) -> None:
    asked_after = []

    async def refill() -> Records | None:
        asked_after.append(stream.current.next_offset if stream.current else None)
        first = 10 * len(asked_after)
        if first > 20:
            return None
        records: Records = decoder.Records(batch(rows(2, first)), topic="t", partition=0)
        return records

    stream: AsyncRecords = decoder.AsyncRecords(refill)
    assert await offsets(stream) == [10, 11, 20, 21]
    assert asked_after == [None, 12, 22]


async def test_other_tasks_run_during_a_refill(decoder: ModuleType) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream, _ = stream_of(decoder, gate, batch(rows(2)))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(offsets(stream))
        await asyncio.sleep(0)
        assert not reading.done()
        gate.set_result(None)
    assert reading.result() == [0, 1]


async def test_a_cancelled_wait_loses_no_record(decoder: ModuleType) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream, source = stream_of(decoder, batch(rows(2)), gate, batch(rows(2, 2)))
    assert [(await anext(stream)).offset for _ in range(2)] == [0, 1]
    for _ in range(3):
        source.answers[0] = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(stream)
    source.answers.pop(0)
    assert await offsets(stream) == [2, 3]
    assert source.calls == 6


async def test_a_cancellation_reaches_the_awaited_future(decoder: ModuleType) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream, _ = stream_of(decoder, gate)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(offsets(stream))
        await asyncio.sleep(0)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    assert gate.cancelled()


async def test_a_refill_that_survives_cancellation_is_used(decoder: ModuleType) -> None:
    async def stubborn() -> Records | None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        records: Records = decoder.Records(batch(rows(1, 7)), topic="t", partition=0)
        return records

    stream: AsyncRecords = decoder.AsyncRecords(stubborn)
    results = []

    async def read() -> None:
        results.append((await anext(stream)).offset)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        await asyncio.sleep(0)
        reading.cancel()
    assert results == [7]


async def test_a_refill_that_suppresses_a_cancellation_is_awaited(
    decoder: ModuleType,
) -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()

    async def suppressing() -> Records | None:
        with contextlib.suppress(asyncio.CancelledError):
            await first
        await second
        records: Records = decoder.Records(batch(rows(1, 7)), topic="t", partition=0)
        return records

    stream: AsyncRecords = decoder.AsyncRecords(suppressing)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(anext(stream))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.sleep(0)
        second.set_result(None)
    assert reading.result().offset == 7


async def test_an_error_of_refill_is_raised_and_the_next_step_continues(
    decoder: ModuleType,
) -> None:
    stream, _ = stream_of(decoder, batch(rows(1)), OSError("gone"), batch(rows(1, 1)))
    assert (await anext(stream)).offset == 0
    with pytest.raises(OSError, match="gone"):
        await anext(stream)
    assert await offsets(stream) == [1]


async def test_a_corrupt_batch_is_raised_and_can_be_skipped(decoder: ModuleType) -> None:
    corrupt = batch(rows(1)) + batch(rows(2, 1), crc=1) + batch(rows(1, 3))
    stream, source = stream_of(decoder, corrupt, batch(rows(1, 4)))
    assert (await anext(stream)).offset == 0
    for _ in range(2):
        with pytest.raises(CorruptRecords):
            await anext(stream)
    assert source.calls == 1
    assert stream.current is not None
    stream.current.skip_corrupt()
    assert await offsets(stream) == [3, 4]


@pytest.mark.parametrize("wrong", [b"bytes", 7, [1]])
async def test_a_refill_must_return_records(decoder: ModuleType, wrong: object) -> None:
    async def refill() -> object:
        return wrong

    with pytest.raises(TypeError, match="Records or None"):
        await anext(decoder.AsyncRecords(refill))


async def test_a_refill_must_be_a_coroutine_function(decoder: ModuleType) -> None:
    with pytest.raises(TypeError):
        decoder.AsyncRecords(None)
    with pytest.raises(TypeError):
        await anext(decoder.AsyncRecords(lambda: 7))


async def test_a_refill_may_return_any_awaitable(decoder: ModuleType) -> None:
    class Soon:
        def __await__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
            yield from asyncio.sleep(0).__await__()
            return None

    assert await offsets(decoder.AsyncRecords(Soon)) == []


async def test_awaiting_the_same_step_twice_is_refused(decoder: ModuleType) -> None:
    stream, _ = stream_of(decoder, batch(rows(3)))
    step = stream.__anext__()
    await step
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
            await step
    assert await offsets(stream) == [1, 2]


async def test_a_second_waiting_task_is_refused(decoder: ModuleType) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream, _ = stream_of(decoder, gate, batch(rows(2)))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(offsets(stream))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task already waits"):
            await anext(stream)
        gate.set_result(None)
    assert reading.result() == [0, 1]


async def test_steps_may_be_awaited_in_any_order(decoder: ModuleType) -> None:
    stream, _ = stream_of(decoder, batch(rows(3)))
    first, second = stream.__anext__(), stream.__anext__()
    assert (await second).offset == 0
    assert (await first).offset == 1


async def test_an_exception_thrown_before_the_start_is_raised(decoder: ModuleType) -> None:
    stream, source = stream_of(decoder, batch(rows(1)))
    step = stream.__anext__()
    with pytest.raises(ValueError, match="early"):
        step.throw(ValueError("early"))
    assert source.calls == 0
    with pytest.raises(RuntimeError):
        await step
    assert await offsets(stream) == [0]


async def test_another_task_may_wait_after_a_step_is_closed(decoder: ModuleType) -> None:
    closed = []

    async def refill() -> Records | None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append(True)
        return None

    stream: AsyncRecords = decoder.AsyncRecords(refill)
    step = stream.__anext__()
    step.send(None)
    with pytest.raises(RuntimeError, match="another task"):
        await anext(stream)
    step.close()
    assert closed == [True]
    other = stream.__anext__()
    other.send(None)
    other.close()
    other.close()


async def test_another_task_may_wait_after_a_step_is_abandoned(decoder: ModuleType) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream, source = stream_of(decoder, gate, batch(rows(1)))
    step = stream.__anext__()
    step.send(None)
    del step
    gc.collect()
    source.answers.pop(0)
    assert await offsets(stream) == [0]


async def test_a_cycle_through_refill_is_collected(decoder: ModuleType) -> None:
    class Owner:
        def __init__(self) -> None:
            self.stream: AsyncRecords = decoder.AsyncRecords(self.refill)

        async def refill(self) -> Records | None:
            records: Records = decoder.Records(batch(rows(2)), topic="t", partition=0)
            return records

    owner = Owner()
    await anext(owner.stream)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


async def test_a_set_of_many_records_is_iterated_completely(decoder: ModuleType) -> None:
    stream, _ = stream_of(decoder, batch(rows(1000)))
    count = 0
    async for record in stream:
        assert isinstance(record, decoder.Record)
        count += 1
    assert count == 1000


async def test_after_the_deadline_refill_is_called_before_each_record(decoder: ModuleType) -> None:
    now = 0.0
    records = decoder.Records(batch(rows(4)), topic="t", partition=0)
    asked: list[int] = []

    async def refill() -> Records | None:
        asked.append(stream.last_offset)
        return records if len(asked) < 4 else None

    stream: AsyncRecords = decoder.AsyncRecords(refill, clock=lambda: now)
    stream.deadline = 10.0
    assert (await anext(stream)).offset == 0
    assert (await anext(stream)).offset == 1
    assert asked == [-1]
    now = 10.0
    assert (await anext(stream)).offset == 2  # refill returned the same records again
    assert asked == [-1, 1]
    records.close()  # lost meanwhile
    assert await offsets(stream) == []
    assert asked == [-1, 1, 2, 2]


async def test_the_clock_of_the_loop_is_the_default(decoder: ModuleType) -> None:
    stream, source = stream_of(decoder, batch(rows(3)), batch(rows(3, 3)))
    stream.deadline = asyncio.get_running_loop().time() + 3600
    await anext(stream)
    await anext(stream)
    assert source.calls == 1
    stream.deadline = asyncio.get_running_loop().time() - 1
    assert (await anext(stream)).offset == 3
    assert source.calls == 2


async def test_a_clock_that_fails_is_reported(decoder: ModuleType) -> None:
    async def refill() -> Records | None:
        return None

    stream: AsyncRecords = decoder.AsyncRecords(refill, clock=lambda: 1 / 0)
    stream.deadline = 1.0
    with pytest.raises(ZeroDivisionError):
        await anext(stream)
