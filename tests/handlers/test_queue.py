"""Order, concurrency, limits, holding and losing: on virtual time, without a broker."""

import asyncio
from collections import defaultdict
from math import inf
from random import Random

import pytest

from asyncconsumer.errors import HandlerCancelled, HandlerFailed
from asyncconsumer.handlers.batches import Batch
from asyncconsumer.handlers.draining import drain
from asyncconsumer.handlers.partition_work import WorkState
from asyncconsumer.testing.virtual_time import simulated
from tests.support.fake_handlers import A, B, open_bench, record, settle, submit

pytestmark = pytest.mark.fast

# --- order ---------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_records_of_a_key_are_processed_one_after_the_other() -> None:
    async with open_bench(ordering="key", concurrency=10) as bench:
        work = bench.queue.open(A, 0, None)
        keys = [b"a", b"a", b"b", None, b"a", None, b"b"]
        submit(bench.queue, work, [record(n, key) for n, key in enumerate(keys)])
        await settle()
        assert sorted(bench.started) == [0, 2, 3, 5]  # records without a key have no order
        await bench.finish(2, 5)
        assert sorted(bench.started) == [0, 2, 3, 5, 6]
        assert work.ledger.committable() == 0
        await bench.finish(0)
        assert bench.started[-1] == 1
        await bench.finish(1)
        assert bench.started[-1] == 4
        await bench.finish(3, 4, 6)
        assert work.ledger.committable() == 7
        assert work.busy == {}


@simulated(seeds=range(5))
async def test_the_same_key_in_two_partitions_is_two_keys() -> None:
    async with open_bench(concurrency=10) as bench:
        for tp in (A, B):
            submit(bench.queue, bench.queue.open(tp, 0, None), [record(tp.partition, b"k", tp)])
        await settle()
        assert sorted(bench.started) == [0, 1]


@simulated(seeds=range(5))
async def test_records_of_a_partition_are_processed_one_after_the_other() -> None:
    async with open_bench(ordering="partition", concurrency=10) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(3)])
        submit(bench.queue, work, [record(n) for n in range(3, 5)])
        for number in range(5):
            await settle()
            assert bench.started == list(range(number + 1))
            await bench.finish(number)
        submit(bench.queue, work, [record(5)])
        await settle()
        assert bench.started[-1] == 5


@simulated(seeds=range(5))
async def test_without_ordering_the_concurrency_is_used_completely() -> None:
    async with open_bench(ordering="none", concurrency=7) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n, b"k") for n in range(20)])
        await settle()
        assert len(bench.pending) == 7
        while bench.pending:
            await bench.finish(*bench.pending)
        assert sorted(bench.started) == list(range(20))
        assert bench.max_concurrent == 7


@simulated(seeds=range(30))
async def test_each_key_keeps_its_order_with_any_processing_times() -> None:
    random = Random(asyncio.get_running_loop().time() + 5)
    seen: dict[bytes, list[int]] = defaultdict(list)
    async with open_bench(ordering="key", concurrency=20) as bench:
        work = bench.queue.open(A, 0, None)
        records = [record(n, b"%d" % random.randrange(15)) for n in range(300)]
        keys = {each.offset: each.key or b"" for each in records}
        remaining = list(records)
        while len(bench.started) < 300 or bench.pending:
            if remaining and random.random() < 0.5:
                count = random.randrange(1, 40)
                submit(bench.queue, work, remaining[:count])
                del remaining[:count]
            await settle()
            working = [keys[offset] for offset in bench.pending]
            assert len(set(working)) == len(working)
            if bench.pending:
                await bench.finish(
                    *random.sample(list(bench.pending), random.randint(1, len(bench.pending)))
                )
        for offset in bench.started:
            seen[keys[offset]].append(offset)
        assert all(offsets == sorted(offsets) for offsets in seen.values())
        assert work.ledger.committable() == 300
        assert (bench.queue.load.count, bench.queue.load.size) == (0, 0)


# --- batches -------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_batch_starts_when_it_is_full_or_has_waited() -> None:
    batch = Batch(max_records=4, max_wait_ms=50)
    async with open_bench(ordering="partition", concurrency=10, batch=batch) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(6)])
        await settle()
        assert bench.batches == [[0, 1, 2, 3]]  # the next batch waits for the previous one
        await bench.finish(0)
        assert bench.batches == [[0, 1, 2, 3]]
        await asyncio.sleep(0.06)
        assert bench.batches == [[0, 1, 2, 3], [4, 5]]
        await bench.finish(4)
        assert work.ledger.committable() == 6
        assert not work.timers


@simulated(seeds=range(5))
async def test_batches_keep_the_order_of_keys_and_run_concurrently() -> None:
    batch = Batch(max_records=3, max_wait_ms=10)
    async with open_bench(ordering="key", concurrency=8, batch=batch) as bench:
        work = bench.queue.open(A, 0, None)
        keys = [b"%d" % (n % 10) for n in range(100)]
        submit(bench.queue, work, [record(n, key) for n, key in enumerate(keys)])
        while work.count:
            await asyncio.sleep(0.02)
            batches = [{keys[offset] for offset in batch} for batch in bench.batches]
            working = [
                batches[i] for i, results in enumerate(bench.batches) if results[0] in bench.pending
            ]
            assert sum(map(len, working)) == len(set().union(*working))
            await bench.finish(*bench.pending)
        order: dict[bytes, list[int]] = defaultdict(list)
        for results in bench.batches:
            for offset in results:
                order[keys[offset]].append(offset)
        assert all(offsets == sorted(offsets) for offsets in order.values())
        assert max(map(len, bench.batches)) == 3
        assert bench.max_concurrent > 1


@simulated(seeds=range(5))
async def test_batches_without_ordering_run_concurrently() -> None:
    batch = Batch(max_records=2, max_wait_ms=10)
    async with open_bench(ordering="none", concurrency=3, batch=batch) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(6)])
        await settle()
        assert sorted(bench.batches) == [[0, 1], [2, 3], [4, 5]]


# --- limits --------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_stuck_partition_leaves_room_for_others() -> None:
    async with open_bench(ordering="none", concurrency=50, max_in_flight=12) as bench:
        stuck, other = bench.queue.open(A, 0, None), bench.queue.open(B, 0, None)
        taken = 0
        while bench.queue.has_room(stuck):
            submit(bench.queue, stuck, [record(taken, tp=A)])
            taken += 1
        assert taken == 6
        taken = 0
        while bench.queue.has_room(other):
            submit(bench.queue, other, [record(100 + taken, tp=B)])
            taken += 1
        assert taken == 3
        await settle()
        waiting = asyncio.get_running_loop().create_task(bench.queue.wait_for_room(other))
        await settle()
        assert not waiting.done()
        await bench.finish(100, 101, 102)
        assert await waiting


@pytest.mark.parametrize("limit", [1, 2, 100, 256, 1000])
@simulated(seeds=range(1))
async def test_a_partition_may_submit_half_of_the_free_room(limit: int) -> None:
    async with open_bench(ordering="none", max_in_flight=limit, max_in_flight_bytes=10**6) as bench:
        work = bench.queue.open(A, 0, None)
        assert bench.queue.room(work) == ((limit + 1) // 2, 500_000)
        submit(bench.queue, work, [record(n) for n in range((limit + 1) // 2)])
        assert not bench.queue.has_room(work)


@simulated(seeds=range(5))
async def test_bytes_in_flight_are_limited() -> None:
    async with open_bench(ordering="none", max_in_flight_bytes=100_000) as bench:
        work = bench.queue.open(A, 0, None)
        taken = 0
        while bench.queue.has_room(work):
            submit(bench.queue, work, [record(taken, size=10_000)])
            taken += 1
        assert taken == 5
        await settle()
        await bench.finish(0, 1)
        assert bench.queue.has_room(work)


@pytest.mark.parametrize("ordering", ["key", "none"])
@simulated(seeds=range(3))
async def test_a_backlog_of_one_partition_does_not_delay_the_others(ordering: str) -> None:
    async with open_bench(ordering=ordering, concurrency=4) as bench:
        for tp, count in ((A, 1000), (B, 100)):
            records = [record(tp.partition * 1000 + n, b"%d" % n, tp) for n in range(count)]
            submit(bench.queue, bench.queue.open(tp, records[0].offset, None), records)
        await settle()
        while len(bench.started) < 200:
            await bench.finish(*bench.pending)
        assert 80 <= sum(offset >= 1000 for offset in bench.started) <= 100


# --- holding and losing --------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_held_partition_starts_no_record_until_its_release() -> None:
    async with open_bench(ordering="key", concurrency=4) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n, b"%d" % (n % 4)) for n in range(8)])
        await settle()
        bench.queue.hold(work)
        settled = asyncio.get_running_loop().create_task(bench.queue.wait_idle(work))
        await bench.finish(0, 1)
        assert len(bench.started) == 4
        assert not settled.done()
        assert not bench.queue.has_room(work)
        await bench.finish(2, 3)
        await settled
        assert sorted(bench.started) == [0, 1, 2, 3]
        bench.queue.release(work)
        await settle()
        assert sorted(bench.started) == list(range(8))
        await bench.finish(4, 5, 6, 7)
        assert work.ledger.committable() == 8


@simulated(seeds=range(5))
async def test_a_lost_partition_is_cancelled_and_the_workers_continue() -> None:
    async with open_bench(ordering="key", concurrency=2) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n, b"%d" % n) for n in range(6)])
        await settle()
        bench.queue.end(work)
        await settle()
        assert (bench.pending, len(bench.started)) == ({}, 2)
        assert (bench.queue.load.count, bench.queue.load.size) == (0, 0)
        again = bench.queue.open(A, 0, None)
        submit(bench.queue, again, [record(n, b"%d" % n) for n in range(2)])
        await settle()
        assert len(bench.pending) == 2
        await bench.finish(0, 1)
        assert again.ledger.committable() == 2


@simulated(seeds=range(5))
async def test_a_returned_partition_waits_for_its_cancelled_calls() -> None:
    ending = asyncio.Event()
    async with open_bench(ordering="key", concurrency=2) as bench:
        work = bench.queue.open(A, 0, None)

        async def stubborn(item: object) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await ending.wait()

        bench.running.workers._call = stubborn
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(bench.work())
            submit(bench.queue, work, [record(0, b"k"), record(1, b"j"), record(2, b"i")])
            await settle()
            bench.queue.end(work)
            again = bench.queue.open(A, 0, None)
            room = group.create_task(bench.queue.wait_for_room(again))
            await settle()
            assert not room.done()
            ending.set()
            assert await room
            worker.cancel()
        await bench.finish(*bench.pending)


class Gate:
    """A fence whose deadline is set by a test."""

    deadline = inf


@simulated(seeds=range(5))
async def test_no_record_starts_after_the_deadline_of_the_fence() -> None:
    gate = Gate()
    async with open_bench(ordering="none", concurrency=3) as bench:
        work = bench.queue.open(A, 0, gate)
        gate.deadline = -inf
        submit(bench.queue, work, [record(n) for n in range(5)])
        await asyncio.sleep(10)
        assert bench.started == []
        gate.deadline = inf
        await asyncio.sleep(0.1)
        assert len(bench.started) == 3
        gate.deadline = -inf
        await bench.finish(*bench.pending)
        await asyncio.sleep(10)
        assert len(bench.started) == 3
        bench.queue.end(work)
        await asyncio.sleep(1)
        assert len(bench.started) == 3


# --- failing -------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_handler_cancelled_from_outside_has_failed() -> None:
    async with open_bench(concurrency=1) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(0)])
        await settle()
        bench.pending[0].cancel()  # the awaited future is cancelled
        await settle()
        assert isinstance(bench.failure, HandlerFailed)
        assert isinstance(bench.failure.__cause__, HandlerCancelled)
        assert work.ledger.committable() == 0


# --- draining ------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_drain_finishes_running_calls_and_starts_no_others() -> None:
    async with open_bench(ordering="none", concurrency=3) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(9)])
        await settle()
        draining = asyncio.get_running_loop().create_task(drain([bench.queue], 60))
        await bench.finish(*bench.pending)
        assert await draining
        assert len(bench.started) == 3
        assert work.ledger.committable() == 3
        assert work.state is WorkState.OPEN


@simulated(seeds=range(5))
async def test_calls_that_exceed_the_drain_grace_are_cancelled_and_reported() -> None:
    async with open_bench(ordering="none", concurrency=3) as bench:
        work = bench.queue.open(A, 0, None)
        submit(bench.queue, work, [record(n) for n in range(9)])
        await settle()
        await bench.finish(0)
        running = sorted(bench.pending)
        drained = await drain([bench.queue], 20)
        assert not drained
        assert {tp: sorted(offsets) for tp, offsets in drained.cut_short.items()} == {A: running}
        assert bench.pending == {}
        assert work.ledger.committable() == 1
