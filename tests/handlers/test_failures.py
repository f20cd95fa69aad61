"""Retries, timeouts, dead letters and poison: on virtual time, without a broker."""

import asyncio
from contextlib import suppress
from random import Random
from typing import Annotated, Any

import pytest

from asyncconsumer import ConfigError, Record
from asyncconsumer.consumer.dead_letters import Failure
from asyncconsumer.errors import (
    DeserializationFailed,
    HandlerFailed,
    HandlerTimedOut,
    RegistryUnavailable,
)
from asyncconsumer.handlers.batches import Batch
from asyncconsumer.handlers.draining import drain
from asyncconsumer.handlers.handler import Handler, HandlerOptions
from asyncconsumer.handlers.retry import Retry
from asyncconsumer.handlers.runtime import HandlerRuntime
from asyncconsumer.serdes import make_deserializer
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_handlers import AROUND, A, B, Bench, open_bench, record, settle, submit

pytestmark = pytest.mark.fast

BAD = ValueError("bad")


class ControlledDeadLetters:
    """Dead letters that a test lets be written, or not."""

    def __init__(self, bench: Bench) -> None:
        self.written: list[tuple[int, Failure]] = []
        self.open = asyncio.Event()
        self.open.set()
        bench.running.failures._dead_letters = self  # type: ignore[assignment]

    async def write(self, record: Record, failure: Failure) -> None:
        await self.open.wait()
        self.written.append((record.offset, failure))


# --- when to try again ---------------------------------------------------------------------------


def test_waits_double_up_to_the_longest_and_chance_changes_them() -> None:
    retry = Retry(attempts=8, backoff_ms=100, max_backoff_ms=1_000, jitter=0)
    waits = [retry.wait(n, BAD, Random(1)) for n in range(1, 9)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, None]
    by_chance = {Retry(jitter=0.5).wait(1, BAD, Random(n)) for n in range(50)}
    assert len(by_chance) == 50
    assert all(0.05 <= (wait or 0) <= 0.15 for wait in by_chance)


def test_only_what_was_named_is_tried_again() -> None:
    retry = Retry(3, on=(OSError,))
    assert retry.wait(1, BAD, Random(1)) is None
    assert retry.wait(1, ConnectionError(), Random(1)) is not None
    assert Retry(3, on=OSError).on == (OSError,)  # type: ignore[arg-type] # as `except` takes it


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": 0}, {"jitter": 2}, {"backoff_ms": 9, "max_backoff_ms": 8}, {"on": ("x",)}],
)
def test_a_retry_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong)).removeprefix("max_")):
        Retry(**wrong)


@simulated(seeds=range(5))
async def test_a_retry_keeps_its_key_waiting_and_nobody_else() -> None:
    async with open_bench(concurrency=1, retry=Retry(3, backoff_ms=1_000, jitter=0)) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0, b"a"), record(1, b"a"), record(2, b"b")])
        await settle()
        await bench.fail(0, BAD)
        assert bench.begun == [0, 2]  # the only worker is free for others
        await bench.finish(2)
        assert work.ledger.committable() == 0
        await asyncio.sleep(1.01)
        assert bench.begun == [0, 2, 0]
        await bench.fail(0, BAD)
        await asyncio.sleep(1.5)
        assert bench.begun == [0, 2, 0]
        await asyncio.sleep(0.6)
        await bench.finish(0)
        assert bench.begun == [0, 2, 0, 0, 1]
        await bench.finish(1)
        assert work.ledger.committable() == 3
        assert (work.attempts, work.timers) == ({}, set())


@simulated(seeds=range(5))
async def test_what_is_lost_while_it_waits_is_not_tried_again() -> None:
    async with open_bench(concurrency=1, retry=Retry(3, backoff_ms=1_000)) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0, b"a")])
        await settle()
        await bench.fail(0, BAD)
        bench.queue.end(work)
        await asyncio.sleep(10)
        assert bench.begun == [0]


@pytest.mark.parametrize("batch", [None, Batch(2, 5)], ids=["singly", "batch"])
@simulated(seeds=range(5))
async def test_what_was_to_be_tried_again_at_the_end_is_reported(batch: Batch | None) -> None:
    """The record is begun and unfinished, though no task has to be cancelled."""
    retry = Retry(3, backoff_ms=30_000)
    async with open_bench(ordering="none", concurrency=3, batch=batch, retry=retry) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(4)])
        await settle()
        await bench.fail(0, BAD)
        await bench.finish(*bench.words)
        drained = await drain([bench.queue], 5)
        assert not drained
        assert drained.cut_short == {A: [0, 1] if batch else [0]}
        bench.queue.end(work)
        assert await drain([bench.queue], 5)


# --- giving up -----------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_after_the_last_attempt_it_is_a_dead_letter() -> None:
    async with open_bench(concurrency=2, retry=Retry(2, backoff_ms=0)) as bench:
        dead_letter_records = ControlledDeadLetters(bench)
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0, b"a"), record(1, b"a")])
        await settle()
        await bench.fail(0, BAD)
        await asyncio.sleep(0.01)
        await bench.fail(0, BAD)
        assert dead_letter_records.written == [
            (0, Failure(BAD, 2, "g", bench.running.handler.name))
        ]
        assert bench.begun == [0, 0, 1]
        await bench.finish(1)
        assert work.ledger.committable() == 2


@simulated(seeds=range(5))
async def test_a_dead_letter_that_is_not_written_yet_is_not_finished() -> None:
    async with open_bench(concurrency=2) as bench:
        dead_letter_records = ControlledDeadLetters(bench)
        dead_letter_records.open.clear()
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0, b"a"), record(1, b"a"), record(2, b"b")])
        await settle()
        await bench.fail(0, BAD)
        await bench.finish(2)
        assert work.ledger.committable() == 0
        assert 1 not in bench.begun
        bench.queue.hold(work)
        settled = asyncio.get_running_loop().create_task(bench.queue.wait_idle(work))
        await settle()
        assert not settled.done()  # it is being worked on
        dead_letter_records.open.set()
        await settled
        assert work.ledger.committable() == 1


@simulated(seeds=range(5))
async def test_a_lost_partition_ends_the_wait_for_a_dead_letter() -> None:
    async with open_bench(concurrency=1) as bench:
        dead_letter_records = ControlledDeadLetters(bench)
        dead_letter_records.open.clear()
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0)])
        await settle()
        await bench.fail(0, BAD)
        bench.queue.end(work)
        await settle()
        assert bench.queue.running == {}
        submit(bench.queue, bench.queue.open(B, 0, None), [record(7, tp=B)])
        await settle()
        assert bench.begun == [0, 7]


@simulated(seeds=range(5))
async def test_without_dead_letters_it_is_the_end() -> None:
    async with open_bench(concurrency=2) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0, b"a"), record(1, b"b")])
        await settle()
        await bench.finish(1)
        await bench.fail(0, BAD)
        assert isinstance(bench.failure, HandlerFailed)
        assert bench.failure.__cause__ is BAD
        assert "t[0]@0" in str(bench.failure)
        assert work.ledger.committable() == 0


@simulated(seeds=range(5))
async def test_what_may_be_skipped_is_skipped() -> None:
    async with open_bench(concurrency=1, on_error="skip") as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0, b"a"), record(1, b"a")])
        await settle()
        await bench.fail(0, BAD)
        await bench.finish(1)
        assert work.ledger.committable() == 2
        assert bench.running.failures.counts["skipped"] == 1


# --- timeouts ------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_handler_that_takes_too_long_has_failed() -> None:
    async with open_bench(
        concurrency=1, handler_timeout_ms=500, retry=Retry(2, backoff_ms=0)
    ) as bench:
        dead_letter_records = ControlledDeadLetters(bench)
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0)])
        await asyncio.sleep(0.9)
        assert bench.begun == [0, 0]
        await asyncio.sleep(0.2)
        ((offset, failure),) = dead_letter_records.written
        assert (offset, failure.attempts) == (0, 2)
        assert isinstance(failure.error, HandlerTimedOut)
        assert work.ledger.committable() == 1


@simulated(seeds=range(2))
async def test_a_handler_that_returns_because_its_time_is_up_has_failed() -> None:
    async def handle(value: bytes) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    bench = bench_for(handle, handler_timeout_ms=500)
    dead_letter_records = ControlledDeadLetters(bench)
    work = bench.queue.open(A, 0, None)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.work())
        submit(bench.queue, work, [record(0)])
        await asyncio.sleep(1)
        task.cancel()
    ((_, failure),) = dead_letter_records.written
    assert isinstance(failure.error, HandlerTimedOut)


# --- poison --------------------------------------------------------------------------------------


def bench_for(function: Any, **handling: Any) -> Bench:
    bench = Bench(**handling)
    handler = Handler(function, frozenset({"t"}), None, HandlerOptions(**handling))
    bench.running = HandlerRuntime(handler, group="g", dead_letters={}, context=AROUND)
    bench.queue = bench.running.queue
    return bench


@simulated(seeds=range(5))
async def test_what_cannot_be_read_is_a_dead_letter_at_once() -> None:
    seen: list[object] = []

    async def handle(value: dict[str, int]) -> None:
        seen.append(value)

    bench = bench_for(handle, retry=Retry(9))
    dead_letter_records = ControlledDeadLetters(bench)
    work = bench.queue.open(A, 0, None)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.work())
        values = [b'{"a": 1}', b"{", None]
        records = [Record("t", 0, n, value=value) for n, value in enumerate(values)]
        submit(bench.queue, work, records)
        await settle()
        task.cancel()
    assert seen == [{"a": 1}, None]
    ((offset, failure),) = dead_letter_records.written
    assert (offset, failure.attempts) == (1, 1)
    assert isinstance(failure.error, DeserializationFailed)
    assert work.ledger.committable() == 3


@pytest.mark.parametrize("batch", [None, Batch(1, 5)], ids=["singly", "batch"])
@simulated(seeds=range(2))
async def test_what_time_may_mend_is_no_poison(batch: Batch | None) -> None:
    """Though nothing is to be tried again: that is for what the handler itself does."""
    seen: list[object] = []
    up = asyncio.Event()

    async def asks(data: bytes) -> int:
        if not up.is_set():
            raise RegistryUnavailable("http://registry", "nobody there")
        return len(data)

    made = make_deserializer(asks)

    async def handle(value: Annotated[int, made]) -> None:
        seen.append(value)

    async def handle_all(value: Annotated[list[int], made]) -> None:
        seen.extend(value)

    bench = bench_for(handle_all if batch else handle, batch=batch)
    dead_letter_records = ControlledDeadLetters(bench)
    work = bench.queue.open(A, 0, None)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.work())
        submit(bench.queue, work, [record(0, size=3)])
        await asyncio.sleep(600)
        assert work.ledger.committable() == 0
        up.set()
        await asyncio.sleep(5)
        task.cancel()
    assert (seen, dead_letter_records.written) == ([3], [])
    assert work.ledger.committable() == 1


@simulated(seeds=range(5))
async def test_the_others_of_a_batch_are_none_the_worse_for_it() -> None:
    seen: list[object] = []

    async def handle(values: list[dict[str, int]], records: list[Record]) -> None:
        seen.append((values, [record.offset for record in records]))

    bench = bench_for(handle, ordering="partition", batch=Batch(4, 5))
    dead_letter_records = ControlledDeadLetters(bench)
    work = bench.queue.open(A, 0, None)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.work())
        values = [b"{", b'{"a": 1}', b"}", b'{"b": 2}', b"?"]
        records = [Record("t", 0, n, value=value) for n, value in enumerate(values)]
        submit(bench.queue, work, records)
        await asyncio.sleep(1)
        task.cancel()
    assert seen == [([{"a": 1}, {"b": 2}], [1, 3])]
    assert [offset for offset, _ in dead_letter_records.written] == [0, 2, 4]
    assert work.ledger.committable() == 5
    assert (work.count, work.size) == (0, 0)


@simulated(seeds=range(5))
async def test_a_batch_that_fails_is_tried_again_whole() -> None:
    batch = Batch(3, 5)
    async with open_bench(ordering="none", batch=batch, retry=Retry(2, backoff_ms=0)) as bench:
        dead_letter_records = ControlledDeadLetters(bench)
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(3)])
        await settle()
        await bench.fail(0, BAD)
        await asyncio.sleep(0.01)
        await bench.fail(0, BAD)
        assert bench.batches == [[0, 1, 2], [0, 1, 2]]
        assert [offset for offset, _ in dead_letter_records.written] == [0, 1, 2]
        assert work.ledger.committable() == 3
