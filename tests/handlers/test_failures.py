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
from tests.support.fake_handlers import CONTEXT, A, B, Bench, open_bench, record, settle, submit

pytestmark = pytest.mark.fast

BAD = ValueError("bad")


class ControlledDeadLetters:
    """Dead letters whose writes a test can block."""

    def __init__(self, bench: Bench) -> None:
        self.written: list[tuple[int, Failure]] = []
        self.open = asyncio.Event()
        self.open.set()
        bench.running.failures._dead_letters = self  # type: ignore[assignment]

    async def write(self, record: Record, failure: Failure) -> None:
        await self.open.wait()
        self.written.append((record.offset, failure))


# --- retries -------------------------------------------------------------------------------------


def test_the_backoff_doubles_up_to_its_limit_with_jitter() -> None:
    retry = Retry(attempts=8, backoff_ms=100, max_backoff_ms=1_000, jitter=0)
    waits = [retry.wait(n, BAD, Random(1)) for n in range(1, 9)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, None]
    by_chance = {Retry(jitter=0.5).wait(1, BAD, Random(n)) for n in range(50)}
    assert len(by_chance) == 50
    assert all(0.05 <= (wait or 0) <= 0.15 for wait in by_chance)


def test_only_the_given_errors_are_retried() -> None:
    retry = Retry(3, on=(OSError,))
    assert retry.wait(1, BAD, Random(1)) is None
    assert retry.wait(1, ConnectionError(), Random(1)) is not None
    assert Retry(3, on=OSError).on == (OSError,)  # type: ignore[arg-type] # like the argument of `except`


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": 0}, {"jitter": 2}, {"backoff_ms": 9, "max_backoff_ms": 8}, {"on": ("x",)}],
)
def test_an_invalid_retry_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong)).removeprefix("max_")):
        Retry(**wrong)


@simulated(seeds=range(5))
async def test_a_retry_blocks_only_its_key() -> None:
    async with open_bench(concurrency=1, retry=Retry(3, backoff_ms=1_000, jitter=0)) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0, b"a"), record(1, b"a"), record(2, b"b")])
        await settle()
        await bench.fail(0, BAD)
        assert bench.started == [0, 2]  # the only worker is free for other keys
        await bench.finish(2)
        assert work.ledger.committable() == 0
        await asyncio.sleep(1.01)
        assert bench.started == [0, 2, 0]
        await bench.fail(0, BAD)
        await asyncio.sleep(1.5)
        assert bench.started == [0, 2, 0]
        await asyncio.sleep(0.6)
        await bench.finish(0)
        assert bench.started == [0, 2, 0, 0, 1]
        await bench.finish(1)
        assert work.ledger.committable() == 3
        assert (work.attempts, work.timers) == ({}, set())


@simulated(seeds=range(5))
async def test_a_record_lost_during_the_backoff_is_not_retried() -> None:
    async with open_bench(concurrency=1, retry=Retry(3, backoff_ms=1_000)) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0, b"a")])
        await settle()
        await bench.fail(0, BAD)
        bench.queue.end(work)
        await asyncio.sleep(10)
        assert bench.started == [0]


@pytest.mark.parametrize("batch", [None, Batch(2, 5)], ids=["singly", "batch"])
@simulated(seeds=range(5))
async def test_a_record_that_waits_for_a_retry_is_reported_by_the_drain(
    batch: Batch | None,
) -> None:
    """The record is unfinished, although no task has to be cancelled."""
    retry = Retry(3, backoff_ms=30_000)
    async with open_bench(ordering="none", concurrency=3, batch=batch, retry=retry) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(4)])
        await settle()
        await bench.fail(0, BAD)
        await bench.finish(*bench.pending)
        drained = await drain([bench.queue], 5)
        assert not drained
        assert drained.cut_short == {A: [0, 1] if batch else [0]}
        bench.queue.end(work)
        assert await drain([bench.queue], 5)


# --- after the last attempt ----------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_record_is_dead_lettered_after_the_last_attempt() -> None:
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
        assert bench.started == [0, 0, 1]
        await bench.finish(1)
        assert work.ledger.committable() == 2


@simulated(seeds=range(5))
async def test_a_record_is_unfinished_until_its_dead_letter_is_written() -> None:
    async with open_bench(concurrency=2) as bench:
        dead_letter_records = ControlledDeadLetters(bench)
        dead_letter_records.open.clear()
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0, b"a"), record(1, b"a"), record(2, b"b")])
        await settle()
        await bench.fail(0, BAD)
        await bench.finish(2)
        assert work.ledger.committable() == 0
        assert 1 not in bench.started
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
        assert bench.started == [0, 7]


@simulated(seeds=range(5))
async def test_a_failure_without_dead_letters_stops_the_app() -> None:
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
async def test_a_failed_record_is_skipped_if_the_policy_allows_it() -> None:
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
async def test_a_handler_that_exceeds_its_timeout_has_failed() -> None:
    async with open_bench(
        concurrency=1, handler_timeout_ms=500, retry=Retry(2, backoff_ms=0)
    ) as bench:
        dead_letter_records = ControlledDeadLetters(bench)
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0)])
        await asyncio.sleep(0.9)
        assert bench.started == [0, 0]
        await asyncio.sleep(0.2)
        ((offset, failure),) = dead_letter_records.written
        assert (offset, failure.attempts) == (0, 2)
        assert isinstance(failure.error, HandlerTimedOut)
        assert work.ledger.committable() == 1


@simulated(seeds=range(2))
async def test_a_handler_that_suppresses_its_timeout_has_failed() -> None:
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
    bench.running = HandlerRuntime(handler, group="g", dead_letters={}, context=CONTEXT)
    bench.queue = bench.running.queue
    return bench


@simulated(seeds=range(5))
async def test_a_deserialization_error_is_dead_lettered_without_retry() -> None:
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
async def test_a_temporary_deserialization_error_is_retried(batch: Batch | None) -> None:
    """The option `retry` applies only to errors of the handler itself."""
    seen: list[object] = []
    up = asyncio.Event()

    async def deserialize(data: bytes) -> int:
        if not up.is_set():
            raise RegistryUnavailable("http://registry", "connection refused")
        return len(data)

    made = make_deserializer(deserialize)

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
async def test_poison_in_a_batch_does_not_affect_other_records() -> None:
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
async def test_a_failed_batch_is_retried_completely() -> None:
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
