"""Runs of a worker through the records of a partition, some of whose calls wait."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from random import Random
from typing import Any

import pytest

from asyncconsumer import Record
from asyncconsumer.aio.wait import wait_until
from asyncconsumer.handlers import workers
from asyncconsumer.handlers.handler import Handler, HandlerOptions
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.handlers.runtime import HandlerRuntime
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_handlers import CONTEXT, A, record, settle, submit

pytestmark = pytest.mark.fast


class Mixed:
    """A handler that waits for some records only. `running` has the records in a call."""

    def __init__(self, waits: Callable[[Record], bool], **handling: Any) -> None:
        self.ended: list[int] = []
        self.running: dict[int, bytes | None] = {}
        self.max_concurrent = 0
        self._waits = waits
        handler = Handler(self.handle, frozenset({"t"}), None, HandlerOptions(**handling))
        self.runtime = HandlerRuntime(handler, group="g", dead_letters={}, context=CONTEXT)
        self.queue = self.runtime.queue

    async def handle(self, record: Record) -> None:
        assert record.key is None or record.key not in self.running.values()
        self.running[record.offset] = record.key
        self.max_concurrent = max(self.max_concurrent, len(self.running))
        if self._waits(record):
            await asyncio.sleep(0.01)
        del self.running[record.offset]
        self.ended.append(record.offset)


@asynccontextmanager
async def mixed(waits: Callable[[Record], bool], **handling: Any) -> AsyncIterator[Mixed]:
    bench = Mixed(waits, **handling)
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(bench.runtime.workers.work()) for _ in range(4)]
        yield bench
        for worker in workers:
            worker.cancel()


@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
@pytest.mark.parametrize("every", [1, 2, 7, 1000])
@simulated(seeds=range(5))
async def test_waiting_and_immediate_calls_keep_order_and_counts(ordering: Any, every: int) -> None:
    random = Random(asyncio.get_running_loop().time() + every)
    async with mixed(lambda record: record.offset % every == every - 1, ordering=ordering) as bench:
        work = bench.queue.open(A, 0, None)
        keys = [b"%d" % random.randrange(6) for _ in range(120)]
        for first in range(0, 120, 40):
            records = [
                record(n, None if ordering == "none" else keys[n]) for n in range(first, first + 40)
            ]
            submit(bench.queue, work, records)
            await asyncio.sleep(random.choice([0, 0.005, 0.03]))
            offset = work.ledger.committable()
            assert offset == min({*range(first + 40)} - {*bench.ended}, default=first + 40)
        while work.count:
            await asyncio.sleep(0.01)
        assert sorted(bench.ended) == list(range(120))
        by_key: dict[bytes, list[int]] = defaultdict(list)
        for ended in bench.ended:
            by_key[keys[ended]].append(ended)
        if ordering != "none":
            assert all(offsets == sorted(offsets) for offsets in by_key.values())
        if ordering == "partition":
            assert bench.ended == sorted(bench.ended)
            assert bench.max_concurrent == 1
        assert (bench.queue.load.count, bench.queue.load.size) == (0, 0)
        assert (bench.queue.finished, work.busy, bench.queue.running) == (120, {}, {})


@simulated(seeds=range(5))
async def test_a_call_in_a_run_is_not_committed_before_it_ends() -> None:
    """The test includes a handler that requests the commit before it first waits."""
    committed: list[int | None] = []
    async with mixed(lambda record: False, ordering="key") as bench:
        work = bench.queue.open(A, 0, None)
        handle = bench.handle

        async def request_commit(record: Record) -> None:
            committed.append(work.ledger.committable())
            await handle(record)

        bench.runtime.workers._call = request_commit
        submit(bench.queue, work, [record(n, b"k") for n in range(3)])
        await settle()
        assert committed == [0, 1, 2]


@simulated(seeds=range(5))
async def test_a_handler_that_holds_its_partition_ends_the_run() -> None:
    async with mixed(lambda record: False, ordering="key") as bench:
        work = bench.queue.open(A, 0, None)
        handle = bench.handle

        async def holds(record: Record) -> None:
            if record.offset == 2:
                bench.queue.hold(work)
            await handle(record)

        bench.runtime.workers._call = holds
        submit(bench.queue, work, [record(n, b"k") for n in range(5)])
        await settle()
        assert bench.ended == [0, 1, 2]
        assert work.ledger.committable() == 3
        bench.queue.release(work)
        await settle()
        assert bench.ended == [0, 1, 2, 3, 4]


class Gate:
    """A fence whose deadline is set by a test."""

    deadline = 0.0


async def test_no_call_of_a_run_starts_after_the_deadline() -> None:
    clock = asyncio.get_running_loop().time
    gate, begun = Gate(), []
    async with mixed(lambda record: False, ordering="key") as bench:
        work = bench.queue.open(A, 0, gate)

        async def blocks(record: Record) -> None:
            begun.append(clock())
            time.sleep(0.02)

        bench.runtime.workers._call = blocks
        deadline = gate.deadline = clock() + 0.05
        submit(bench.queue, work, [record(n, b"k") for n in range(8)])
        await asyncio.sleep(0.1)
        assert all(moment < deadline for moment in begun)
        assert len(begun) < 8
        gate.deadline = inf
        await wait_until(lambda: not work.count)
        assert len(begun) == 8


@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
async def test_a_suspension_during_a_run_ends_it_before_its_next_call(
    ordering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of a run counts the suspension, and the deadline has moved."""
    gate, begun, suspended = Gate(), [], [0.0]
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(workers, "_run_clock", lambda: lambda: loop.time() + suspended[0])
    async with mixed(lambda record: False, ordering=ordering) as bench:
        work = bench.queue.open(A, 0, gate)

        async def suspends(record: Record) -> None:
            begun.append(record.offset)
            if record.offset == 2:
                suspended[0] = 60.0
                gate.deadline -= 60.0

        bench.runtime.workers._call = suspends
        gate.deadline = loop.time() + 30
        submit(bench.queue, work, [record(n, b"k") for n in range(8)])
        await settle()
        assert begun == [0, 1, 2]
        gate.deadline = inf
        await wait_until(lambda: not work.count)
        assert begun == list(range(8))


@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
@simulated(seeds=range(5))
async def test_no_call_follows_in_a_run_whose_partition_is_lost(ordering: Any) -> None:
    """The running call is cancelled at its next await."""
    begun: list[int] = []
    cancelled: list[int] = []
    async with mixed(lambda record: False, ordering=ordering) as bench:
        work = bench.queue.open(A, 0, None)

        async def loses(record: Record) -> None:
            begun.append(record.offset)
            if record.offset == 2:
                bench.queue.end(work)
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    cancelled.append(record.offset)
                    raise

        bench.runtime.workers._call = loses
        submit(bench.queue, work, [record(n, b"k") for n in range(8)])
        await settle()
        assert (begun, cancelled) == ([0, 1, 2], [2])
        assert (bench.queue.load.count, bench.queue.running, bench.queue.startable) == (0, {}, {})


@pytest.mark.parametrize("rarely", [False, True])
async def test_a_waiting_handler_is_called_outside_of_runs(
    rarely: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are used again after calls that did not wait."""
    runs = []
    begin_run = WorkQueue.begin_run

    def counted(self: WorkQueue, *arguments: Any) -> None:
        runs.append(arguments)
        begin_run(self, *arguments)

    monkeypatch.setattr(WorkQueue, "begin_run", counted)
    async with mixed(lambda record: not rarely or record.offset == 10, ordering="none") as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(200)])
        await wait_until(lambda: not work.count)
    assert sorted(bench.ended) == list(range(200))
    assert len(runs) <= 4  # one for each worker
    assert rarely == (len(runs) < 4)
