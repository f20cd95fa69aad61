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
from tests.work.fakes import A, B, bench, record, settle, submit

pytestmark = pytest.mark.fast

# --- order ---------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_of_a_key_one_record_is_worked_on_after_the_other() -> None:
    async with bench(ordering="key", concurrency=10) as one:
        share = one.lanes.open(A, 0, None)
        keys = [b"a", b"a", b"b", None, b"a", None, b"b"]
        submit(one.lanes, share, [record(n, key) for n, key in enumerate(keys)])
        await settle()
        assert sorted(one.begun) == [0, 2, 3, 5]  # records without a key have no order
        await one.finish(2, 5)
        assert sorted(one.begun) == [0, 2, 3, 5, 6]
        assert share.ledger.committable() == 0
        await one.finish(0)
        assert one.begun[-1] == 1
        await one.finish(1)
        assert one.begun[-1] == 4
        await one.finish(3, 4, 6)
        assert share.ledger.committable() == 7
        assert share.lanes == {}


@simulated(seeds=range(5))
async def test_the_same_key_in_two_partitions_is_two_keys() -> None:
    async with bench(concurrency=10) as one:
        for at in (A, B):
            submit(one.lanes, one.lanes.open(at, 0, None), [record(at.partition, b"k", at)])
        await settle()
        assert sorted(one.begun) == [0, 1]


@simulated(seeds=range(5))
async def test_of_a_partition_one_record_is_worked_on_after_the_other() -> None:
    async with bench(ordering="partition", concurrency=10) as one:
        share = one.lanes.open(A, 0, None)
        submit(one.lanes, share, [record(n) for n in range(3)])
        submit(one.lanes, share, [record(n) for n in range(3, 5)])
        for number in range(5):
            await settle()
            assert one.begun == list(range(number + 1))
            await one.finish(number)
        submit(one.lanes, share, [record(5)])
        await settle()
        assert one.begun[-1] == 5


@simulated(seeds=range(5))
async def test_without_order_as_many_as_may_be_are_worked_on() -> None:
    async with bench(ordering="none", concurrency=7) as one:
        share = one.lanes.open(A, 0, None)
        submit(one.lanes, share, [record(n, b"k") for n in range(20)])
        await settle()
        assert len(one.words) == 7
        while one.words:
            await one.finish(*one.words)
        assert sorted(one.begun) == list(range(20))
        assert one.most_at_once == 7


@simulated(seeds=range(30))
async def test_every_key_keeps_its_order_whatever_its_records_take() -> None:
    random = Random(asyncio.get_running_loop().time() + 5)
    seen: dict[bytes, list[int]] = defaultdict(list)
    async with bench(ordering="key", concurrency=20) as one:
        share = one.lanes.open(A, 0, None)
        records = [record(n, b"%d" % random.randrange(15)) for n in range(300)]
        keys = {each.offset: each.key or b"" for each in records}
        left = list(records)
        while len(one.begun) < 300 or one.words:
            if left and random.random() < 0.5:
                count = random.randrange(1, 40)
                submit(one.lanes, share, left[:count])
                del left[:count]
            await settle()
            working = [keys[offset] for offset in one.words]
            assert len(set(working)) == len(working)
            if one.words:
                await one.finish(*random.sample(list(one.words), random.randint(1, len(one.words))))
        for offset in one.begun:
            seen[keys[offset]].append(offset)
        assert all(offsets == sorted(offsets) for offsets in seen.values())
        assert share.ledger.committable() == 300
        assert (one.lanes.load.count, one.lanes.load.size) == (0, 0)


# --- batches -------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_batch_is_full_or_has_waited() -> None:
    batch = Batch(max_records=4, max_wait_ms=50)
    async with bench(ordering="partition", concurrency=10, batch=batch) as one:
        share = one.lanes.open(A, 0, None)
        submit(one.lanes, share, [record(n) for n in range(6)])
        await settle()
        assert one.batches == [[0, 1, 2, 3]]  # the next waits for the one before
        await one.finish(0)
        assert one.batches == [[0, 1, 2, 3]]
        await asyncio.sleep(0.06)
        assert one.batches == [[0, 1, 2, 3], [4, 5]]
        await one.finish(4)
        assert share.ledger.committable() == 6
        assert not share.timers


@simulated(seeds=range(5))
async def test_batches_by_key_keep_its_order_and_others_go_on() -> None:
    batch = Batch(max_records=3, max_wait_ms=10)
    async with bench(ordering="key", concurrency=8, batch=batch) as one:
        share = one.lanes.open(A, 0, None)
        keys = [b"%d" % (n % 10) for n in range(100)]
        submit(one.lanes, share, [record(n, key) for n, key in enumerate(keys)])
        while share.count:
            await asyncio.sleep(0.02)
            lanes = [{keys[offset] for offset in found} for found in one.batches]
            working = [lanes[i] for i, found in enumerate(one.batches) if found[0] in one.words]
            assert sum(map(len, working)) == len(set().union(*working))
            await one.finish(*one.words)
        order: dict[bytes, list[int]] = defaultdict(list)
        for found in one.batches:
            for offset in found:
                order[keys[offset]].append(offset)
        assert all(offsets == sorted(offsets) for offsets in order.values())
        assert max(map(len, one.batches)) == 3
        assert one.most_at_once > 1


@simulated(seeds=range(5))
async def test_batches_without_order_are_made_side_by_side() -> None:
    batch = Batch(max_records=2, max_wait_ms=10)
    async with bench(ordering="none", concurrency=3, batch=batch) as one:
        share = one.lanes.open(A, 0, None)
        submit(one.lanes, share, [record(n) for n in range(6)])
        await settle()
        assert sorted(one.batches) == [[0, 1], [2, 3], [4, 5]]


# --- limits --------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_partition_that_is_stuck_leaves_room_for_others() -> None:
    async with bench(ordering="none", concurrency=50, max_in_flight=12) as one:
        stuck, other = one.lanes.open(A, 0, None), one.lanes.open(B, 0, None)
        taken = 0
        while one.lanes.has_room(stuck):
            submit(one.lanes, stuck, [record(taken, at=A)])
            taken += 1
        assert taken == 6
        taken = 0
        while one.lanes.has_room(other):
            submit(one.lanes, other, [record(100 + taken, at=B)])
            taken += 1
        assert taken == 3
        await settle()
        waiting = asyncio.get_running_loop().create_task(one.lanes.room(other))
        await settle()
        assert not waiting.done()
        await one.finish(100, 101, 102)
        assert await waiting


@simulated(seeds=range(5))
async def test_bytes_are_bounded_as_well() -> None:
    async with bench(ordering="none", max_in_flight_bytes=100_000) as one:
        share = one.lanes.open(A, 0, None)
        taken = 0
        while one.lanes.has_room(share):
            submit(one.lanes, share, [record(taken, size=10_000)])
            taken += 1
        assert taken == 5
        await settle()
        await one.finish(0, 1)
        assert one.lanes.has_room(share)


# --- holding and losing --------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_what_is_held_begins_nothing_and_goes_on_after_it() -> None:
    async with bench(ordering="key", concurrency=4) as one:
        share = one.lanes.open(A, 0, None)
        submit(one.lanes, share, [record(n, b"%d" % (n % 4)) for n in range(8)])
        await settle()
        one.lanes.hold(share)
        settled = asyncio.get_running_loop().create_task(one.lanes.settled(share))
        await one.finish(0, 1)
        assert len(one.begun) == 4
        assert not settled.done()
        assert not one.lanes.has_room(share)
        await one.finish(2, 3)
        await settled
        assert sorted(one.begun) == [0, 1, 2, 3]
        one.lanes.release(share)
        await settle()
        assert sorted(one.begun) == list(range(8))
        await one.finish(4, 5, 6, 7)
        assert share.ledger.committable() == 8


@simulated(seeds=range(5))
async def test_a_lost_partition_is_cancelled_and_forgotten_and_the_workers_live() -> None:
    async with bench(ordering="key", concurrency=2) as one:
        share = one.lanes.open(A, 0, None)
        submit(one.lanes, share, [record(n, b"%d" % n) for n in range(6)])
        await settle()
        one.lanes.end(share)
        await settle()
        assert (one.words, len(one.begun)) == ({}, 2)
        assert (one.lanes.load.count, one.lanes.load.size) == (0, 0)
        again = one.lanes.open(A, 0, None)
        submit(one.lanes, again, [record(n, b"%d" % n) for n in range(2)])
        await settle()
        assert len(one.words) == 2
        await one.finish(0, 1)
        assert again.ledger.committable() == 2


@simulated(seeds=range(5))
async def test_a_partition_that_comes_back_waits_for_what_is_still_ending() -> None:
    ending = asyncio.Event()
    async with bench(ordering="key", concurrency=2) as one:
        share = one.lanes.open(A, 0, None)

        async def stubborn(item: object) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await ending.wait()

        one.running.workers._call = stubborn
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(one.work())
            submit(one.lanes, share, [record(0, b"k"), record(1, b"j"), record(2, b"i")])
            await settle()
            one.lanes.end(share)
            again = one.lanes.open(A, 0, None)
            room = group.create_task(one.lanes.room(again))
            await settle()
            assert not room.done()
            ending.set()
            assert await room
            worker.cancel()
        await one.finish(*one.words)


class Gate:
    """A fence that a test opens and shuts."""

    deadline = inf


@simulated(seeds=range(5))
async def test_nothing_begins_while_it_may_be_somebody_elses() -> None:
    gate = Gate()
    async with bench(ordering="none", concurrency=3) as one:
        share = one.lanes.open(A, 0, gate)
        gate.deadline = -inf
        submit(one.lanes, share, [record(n) for n in range(5)])
        await asyncio.sleep(10)
        assert one.begun == []
        gate.deadline = inf
        await asyncio.sleep(0.1)
        assert len(one.begun) == 3
        gate.deadline = -inf
        await one.finish(*one.words)
        await asyncio.sleep(10)
        assert len(one.begun) == 3
        one.lanes.end(share)
        await asyncio.sleep(1)
        assert len(one.begun) == 3


# --- failing -------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_handler_that_is_cancelled_by_others_has_failed() -> None:
    async with bench(concurrency=1) as one:
        share = one.lanes.open(A, 0, None)
        submit(one.lanes, share, [record(0)])
        await settle()
        one.words[0].cancel()  # something that it waited for
        await settle()
        assert isinstance(one.failure, HandlerFailed)
        assert isinstance(one.failure.__cause__, HandlerCancelled)
        assert share.ledger.committable() == 0


# --- draining ------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_draining_lets_finish_what_runs_and_begins_nothing() -> None:
    async with bench(ordering="none", concurrency=3) as one:
        share = one.lanes.open(A, 0, None)
        submit(one.lanes, share, [record(n) for n in range(9)])
        await settle()
        draining = asyncio.get_running_loop().create_task(drain([one.lanes], 60))
        await one.finish(*one.words)
        assert await draining
        assert len(one.begun) == 3
        assert share.ledger.committable() == 3
        assert share.state is WorkState.OPEN


@simulated(seeds=range(5))
async def test_what_takes_too_long_is_cut_short_and_told() -> None:
    async with bench(ordering="none", concurrency=3) as one:
        share = one.lanes.open(A, 0, None)
        submit(one.lanes, share, [record(n) for n in range(9)])
        await settle()
        await one.finish(0)
        running = sorted(one.words)
        drained = await drain([one.lanes], 20)
        assert not drained
        assert {at: sorted(offsets) for at, offsets in drained.cut_short.items()} == {A: running}
        assert one.words == {}
        assert share.ledger.committable() == 1
