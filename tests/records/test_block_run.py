"""Runs of calls with the records of a block, with both decoders."""

import asyncio
import gc
import types
import weakref
from collections.abc import Callable, Generator
from math import inf
from types import ModuleType
from typing import Any

import pytest

from asyncconsumer.aio.start_task import start_task

pytestmark = pytest.mark.fast


class Runs:
    """A block of records, and the runs over it."""

    def __init__(self, decoder: ModuleType, keys: list[bytes | None]) -> None:
        self.decoder = decoder
        self.called: list[int] = []
        self.results: list[Any] = []
        self.busy: dict[Any, None] = {}
        self.cancelling = 0
        self.block = decoder.RecordBlock()
        records = [decoder.Record("t", 0, offset, key=key) for offset, key in enumerate(keys)]
        assert not self.block.fill(records, len(records) + 1, inf)

    async def call(self, record: Any) -> Any:
        self.called.append(record.offset)

    def postpone(self) -> None:
        self.block.index += 1

    def run(self, call: Callable[[Any], Any] | None = None, **options: Any) -> Any:
        limit, seconds = options.pop("limit", 100), options.pop("seconds", inf)
        return self.decoder.BlockRun(
            self.block,
            call or self.call,
            limit,
            seconds,
            busy=self.busy,
            postpone=self.postpone,
            on_result=options.pop("on_result", self.results.append),
            cancelling=lambda: self.cancelling,
            **options,
        )


@pytest.fixture
def runs(decoder: ModuleType) -> Runs:
    return Runs(decoder, [b"a", b"b", b"a", b"c", None])


async def test_a_run_calls_the_function_for_each_record_in_order(runs: Runs) -> None:
    run = runs.run()
    assert await run is None
    assert runs.called == [0, 1, 2, 3, 4]
    assert (runs.block.index, run.calls, run.taken) == (5, 5, False)
    assert run.record.offset == 4
    with pytest.raises(RuntimeError, match="reuse"):
        await run


async def test_a_run_continues_where_the_last_one_ended(runs: Runs) -> None:
    await runs.run(limit=2)
    await runs.run(limit=2)
    assert (runs.called, runs.block.index) == ([0, 1, 2, 3], 4)


async def test_calls_may_wait(runs: Runs) -> None:
    async def call(record: Any) -> None:
        runs.called.append(record.offset)
        await asyncio.sleep(0)
        assert runs.block.index == record.offset  # the index advances after the call has ended

    await runs.run(call)
    assert runs.called == [0, 1, 2, 3, 4]


async def test_a_call_may_return_any_awaitable(runs: Runs) -> None:
    class Once:
        def __await__(self) -> Generator[Any, Any, int]:
            yield
            return 7

    @types.coroutine
    def generator() -> Generator[Any, Any, int]:
        yield
        return 8

    answers: list[Callable[[], Any]] = [
        Once,
        generator,
        lambda: asyncio.get_running_loop().create_task(asyncio.sleep(0, 9)),
    ]
    await runs.run(lambda record: answers[record.offset](), limit=3)
    assert runs.results == [7, 8, 9]
    with pytest.raises(TypeError, match="await"):
        await runs.run(lambda record: record.offset)
    assert runs.block.index == 3


async def test_an_error_ends_the_run_at_its_record(runs: Runs) -> None:
    async def call(record: Any) -> None:
        if record.offset == 2:
            raise KeyError(record.offset)

    run = runs.run(call)
    with pytest.raises(KeyError):
        await run
    assert (runs.block.index, run.record.offset, run.calls) == (2, 2, 3)


async def test_an_error_raised_by_the_function_ends_the_run(runs: Runs) -> None:
    def call(record: Any) -> Any:
        raise KeyError(record.offset)

    with pytest.raises(KeyError):
        await runs.run(call)
    assert runs.block.index == 0


async def test_a_cancellation_reaches_the_call(runs: Runs) -> None:
    ended: list[int] = []

    async def call(record: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(record.offset)

    async def drive() -> None:
        await runs.run(call)

    task = start_task(asyncio.get_running_loop(), drive())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (ended, runs.block.index) == ([0], 0)


async def test_a_call_that_suppresses_its_cancellation_counts(runs: Runs) -> None:
    async def call(record: Any) -> None:
        runs.called.append(record.offset)
        try:
            await asyncio.sleep(inf)
        except asyncio.CancelledError:
            runs.cancelling = 1

    async def drive() -> None:
        await runs.run(call)

    task = start_task(asyncio.get_running_loop(), drive())
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert (runs.called, runs.block.index) == ([0], 1)


async def test_a_run_ends_when_its_task_is_being_cancelled(runs: Runs) -> None:
    async def call(record: Any) -> None:
        runs.called.append(record.offset)
        runs.cancelling = record.offset == 1

    await runs.run(call)
    assert (runs.called, runs.block.index) == ([0, 1], 2)


async def test_records_of_busy_keys_are_postponed(runs: Runs) -> None:
    runs.busy[b"a"] = None
    run = runs.run()
    await run
    assert runs.called == [1, 3, 4]
    assert run.calls == 3
    runs.block.index = 0
    runs.busy = {None: None}
    await runs.run(limit=5)
    assert runs.called[3:] == [0, 1, 2, 3]


async def test_a_key_may_become_busy_during_a_run(runs: Runs) -> None:
    async def call(record: Any) -> None:
        runs.called.append(record.offset)
        runs.busy[record.key] = None

    await runs.run(call)
    assert runs.called == [0, 1, 3, 4]


async def test_a_postponement_must_skip_the_record(runs: Runs) -> None:
    runs.busy[b"a"] = None
    runs.postpone = lambda: None  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="pass over"):
        await runs.run()


async def test_a_record_that_was_taken_during_its_call_ends_the_run(runs: Runs) -> None:
    async def call(record: Any) -> None:
        runs.called.append(record.offset)
        runs.block.index += record.offset == 1

    run = runs.run(call)
    await run
    assert (runs.called, runs.block.index, run.taken) == ([0, 1], 2, True)
    assert run.record.offset == 1


async def test_results_are_passed_on(runs: Runs) -> None:
    async def call(record: Any) -> int | None:
        return record.offset if record.offset % 2 else None

    await runs.run(call)
    assert runs.results == [1, 3]


async def test_a_run_ends_after_its_time_limit(runs: Runs) -> None:
    time = 100.0

    async def call(record: Any) -> None:
        nonlocal time
        runs.called.append(record.offset)
        time += 2.0 + record.offset

    run = runs.run(call, seconds=5.0, clock=lambda: time)
    await run
    assert runs.called == [0, 1]
    assert (run.calls, run.seconds_before_last, run.seconds_of_last) == (2, 2.0, 3.0)


async def test_the_system_clock_is_the_default(runs: Runs) -> None:
    run = runs.run(seconds=0.0)
    await run
    assert runs.called == [0]
    assert run.seconds_before_last == 0.0
    assert 0.0 <= run.seconds_of_last < 60.0


async def test_a_run_refuses_a_second_awaiter(runs: Runs) -> None:
    async def call(record: Any) -> None:
        await asyncio.sleep(inf)

    run = runs.run(call)
    task = start_task(asyncio.get_running_loop(), _awaited(run))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(RuntimeError):
        await run


async def _awaited(run: Any) -> None:
    await run


def test_a_run_that_is_closed_closes_its_call(runs: Runs) -> None:
    closed = []

    @types.coroutine
    def wait() -> Generator[Any, Any, None]:
        try:
            yield
        finally:
            closed.append(1)

    run = runs.run(lambda record: wait()).__await__()
    assert next(run) is None
    run.close()
    assert closed == [1]


def test_a_run_that_refers_to_itself_is_collected(runs: Runs) -> None:
    class Call:
        run: Any

        def __call__(self, record: Any) -> None: ...

    call = Call()
    call.run = runs.run(call)
    dead = weakref.ref(call)
    del call
    gc.collect()
    assert dead() is None


# --- blocks --------------------------------------------------------------------------------------


def test_a_block_is_filled_up_to_a_number_and_a_size(decoder: ModuleType) -> None:
    records = [decoder.Record("t", 0, offset, value=b"v" * 100) for offset in range(10)]
    block, iterator = decoder.RecordBlock(), iter(records)
    assert block.fill(iterator, 2, inf)
    assert block.fill(iterator, 10, 901.0)  # 4 records, of which the last exceeds the size
    assert block.records == records[:4]
    assert (block.size_between(0, 4), block.size_between(1, 2)) == (1200, 300)
    assert block.size_between(2, 2) == 0
    assert not block.fill(iterator, 11, inf)
    assert block.records == records
    for start, stop in ((-1, 1), (0, 11), (2, 1)):
        with pytest.raises(IndexError):
            block.size_between(start, stop)


def test_the_size_counts_key_value_and_headers(decoder: ModuleType) -> None:
    headers = (("name", b"content"), ("empty", None))
    record = decoder.Record("t", 0, 0, key=b"key", value=None, headers=headers)
    block = decoder.RecordBlock()
    block.fill([record], 1, inf)
    assert block.size_between(0, 1) == 200 + 3 + (100 + 4 + 7) + (100 + 5)


def test_a_block_keeps_the_records_before_an_error(decoder: ModuleType) -> None:
    def records() -> Generator[Any, None, None]:
        yield decoder.Record("t", 0, 0)
        raise KeyError

    block = decoder.RecordBlock()
    with pytest.raises(KeyError):
        block.fill(records(), 10, inf)
    assert [record.offset for record in block.records] == [0]
    with pytest.raises(TypeError, match="not int"):
        block.fill([1], 10, inf)


async def test_a_run_tolerates_a_changed_list_of_records(runs: Runs) -> None:
    runs.block.records[1:] = []
    await runs.run()
    assert runs.called == [0]
    runs.block.index = -3
    runs.block.index = 7
    await runs.run()
    assert runs.called == [0]


# --- calls with parts of a record ----------------------------------------------------------------


def test_a_function_is_called_with_parts_of_a_record(decoder: ModuleType) -> None:
    record = decoder.Record("t", 0, 5, key=b"1", value=b"23")

    def together(*parts: Any) -> tuple[Any, ...]:
        return parts

    key, value = decoder.PartReader("key", int), decoder.PartReader("value")
    whole = decoder.PartReader("record")
    assert decoder.PartsCall(together, [value])(record) == (b"23",)
    assert decoder.PartsCall(together, [key, value, whole])(record) == (1, b"23", record)
    assert decoder.PartsCall(together, [lambda each: each.offset])(record) == (5,)
    assert decoder.PartsCall(together, [])(record) == ()
    with pytest.raises(TypeError):
        decoder.PartsCall(together, [key])()


def test_a_part_reader_also_reads_other_objects(decoder: ModuleType) -> None:
    message = decoder.Message(decoder.Record("t", 0, 0, value=b"1"), None, {"a": 1})
    assert decoder.PartReader("value")(message) == {"a": 1}
    assert decoder.PartReader("record")(message) is message
    with pytest.raises(AttributeError):
        decoder.PartReader("key")(object())
    with pytest.raises(ValueError, match="headers"):
        decoder.PartReader("headers")


def test_a_null_is_not_passed_to_the_function_of_a_reader(decoder: ModuleType) -> None:
    record = decoder.Record("t", 0, 5)
    assert decoder.PartReader("value", int)(record) is None


def test_the_error_of_a_reader_is_translated(decoder: ModuleType) -> None:
    record = decoder.Record("t", 0, 5, value=b"x")
    failures: list[Any] = []

    def fail(*failure: Any) -> None:
        failures.append(failure)

    def translate(error: BaseException, *_: Any) -> None:
        raise KeyError from error

    with pytest.raises(ValueError, match="invalid literal"):
        decoder.PartReader("value", int, fail)(record)
    [(error, of, part)] = failures
    assert (type(error), of, part) == (ValueError, record, "value")
    with pytest.raises(KeyError) as caught:
        decoder.PartReader("value", int, translate)(record)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_run_continues_after_on_result_skipped_the_record(runs: Runs) -> None:
    async def call(record: Any) -> int:
        runs.called.append(record.offset)
        return int(record.offset)

    def skip_next(result: int) -> bool:
        if result == 3:
            runs.block.index += 1
        return result == 3

    run = runs.run(call, on_result=skip_next)
    await run
    assert runs.called == [0, 1, 2, 3, 4]
    assert (runs.block.index, run.calls, run.taken) == (5, 5, False)
    runs.called.clear()
    runs.block.index = 2
    run = runs.run(call, on_result=lambda result: skip_next(result) and None)
    await run
    assert (runs.called, runs.block.index, run.taken) == ([2, 3], 4, True)


async def test_an_error_of_on_result_ends_the_run_at_its_record(runs: Runs) -> None:
    async def call(record: Any) -> Any:
        return runs

    def refuse(result: object) -> None:
        raise KeyError(type(result))

    run = runs.run(call, on_result=refuse)
    with pytest.raises(KeyError):
        await run
    assert (runs.block.index, run.record.offset, run.taken) == (0, 0, False)
