import asyncio
import traceback

import pytest

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.errors import ClosedError, ConsumerError, CorruptRecords
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.chunks import A, B, C, chunk


def filled(budget: Budget, channel: Channel, tp: TopicPartition, size: int) -> Chunk:
    pushed = chunk(tp, size=size)
    budget.take(size)
    channel.push(pushed)
    return pushed


def test_partitions_alternate_and_each_keeps_its_order() -> None:
    channel = Channel(Budget(1000))
    for tp, offset in ((A, 0), (A, 3), (A, 6), (B, 0), (C, 0), (B, 3)):
        channel.push(chunk(tp, offset, size=1))
    got = [(chunk.partition, chunk.offset) for chunk in iter(channel.pop_now, None)]
    assert got == [(A, 0), (B, 0), (C, 0), (A, 3), (B, 3), (A, 6)]


def test_bytes_are_charged_until_the_reader_is_done_with_the_chunk() -> None:
    budget = Budget(1000)
    channel = Channel(budget)
    chunk = filled(budget, channel, A, 300)
    assert (channel.buffered_bytes, budget.free) == (300, 700)
    assert channel.pop_now() is chunk
    assert (channel.buffered_bytes, budget.free) == (300, 700)
    channel.done(chunk)
    assert (channel.buffered_bytes, budget.free) == (0, 1000)
    channel.done(chunk)
    assert budget.free == 1000
    assert (channel.peak, budget.peak) == (300, 300)


def test_each_unread_channel_takes_half_of_the_free_budget() -> None:
    budget = Budget(1200)
    channels = [Channel(budget) for _ in range(3)]
    for channel in channels:
        while channel.has_room():
            filled(budget, channel, A, 1)
    assert [channel.buffered_bytes for channel in channels] == [600, 300, 150]
    assert budget.free == 150
    late = Channel(budget)
    assert late.has_room()


def test_a_quarter_of_the_budget_is_shared_by_empty_channels() -> None:
    budget = Budget(1600)
    budget.divide(4)
    channels = [Channel(budget) for _ in range(4)]
    while channels[0].has_room():
        filled(budget, channels[0], A, 1)
    assert (channels[0].buffered_bytes, budget.free) == (600, 600)
    budget.take(600)  # by others
    assert (budget.free, budget.share) == (0, 100)
    assert [channel.has_room() for channel in channels] == [False, True, True, True]
    channels[1].hold(B)
    filled(budget, channels[1], B, 100)
    filled(budget, channels[2], A, 100)
    assert [channel.has_share() for channel in channels] == [False, True, False, True]
    budget.take(101)
    assert not any(channel.has_room() for channel in channels)  # less than a share is left
    budget.give_back(1)
    assert channels[3].has_room()
    channels[3].close()
    assert not channels[3].has_room()


def test_a_single_channel_has_the_whole_budget() -> None:
    budget = Budget(1600)
    budget.divide(1)
    assert (budget.free, budget.has_share) == (1600, False)


def test_a_wakeup_is_set_once_when_bytes_are_released() -> None:
    budget, wakeup, other = Budget(10), asyncio.Event(), asyncio.Event()
    budget.take(10)
    budget.notify_on_release(wakeup)
    budget.notify_on_release(other)
    budget.cancel_notify(other)
    budget.give_back(1)
    assert wakeup.is_set()
    assert not other.is_set()
    wakeup.clear()
    budget.give_back(1)
    assert not wakeup.is_set()


async def test_tasks_that_wait_for_room_are_woken_in_order() -> None:
    budget, served = Budget(10), []
    wakeups = [asyncio.Event() for _ in range(20)]

    async def wait(number: int) -> None:
        await wakeups[number].wait()
        served.append(number)

    budget.take(10)
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(wait(number))
        for wakeup in (*wakeups, *wakeups[:5]):  # a second request keeps its place
            budget.notify_on_release(wakeup)
        await asyncio.sleep(0)
        budget.give_back(1)
    assert served == list(range(20))


def test_a_held_partition_keeps_its_chunks_and_others_are_delivered() -> None:
    channel = Channel(Budget(1000))
    channel.push(chunk(A, 0))
    channel.push(chunk(B, 0))
    channel.hold(A)
    channel.hold(A)
    channel.push(chunk(A, 3))
    channel.hold(C)
    channel.push(chunk(C, 0))
    assert [chunk.partition for chunk in iter(channel.pop_now, None)] == [B]
    assert A in channel
    channel.release(A)
    channel.release(A)
    assert [chunk.offset for chunk in iter(channel.pop_now, None)] == [0, 3]
    channel.release(C)
    assert [chunk.partition for chunk in iter(channel.pop_now, None)] == [C]


def test_dropping_a_partition_releases_buffered_and_ends_open_chunks() -> None:
    budget = Budget(1000)
    channel = Channel(budget)
    in_flight = filled(budget, channel, A, 100)
    filled(budget, channel, A, 200)
    chunk = filled(budget, channel, B, 300)
    assert channel.pop_now() is in_flight
    assert next(in_flight.records).offset == 0
    assert channel.drop(A) == 1
    assert list(in_flight.records) == []
    assert budget.used == 400  # a delivered record is still in memory
    channel.done(in_flight)
    assert budget.used == 300
    assert channel.pop_now() is chunk
    assert channel.pop_now() is None


def test_a_held_partition_can_be_dropped() -> None:
    budget = Budget(1000)
    channel = Channel(budget)
    filled(budget, channel, A, 100)
    channel.hold(A)
    channel.drop(A)
    assert budget.used == 0
    filled(budget, channel, A, 100)  # it is redelivered, and no longer held
    assert channel.pop_now() is not None


def test_an_error_follows_the_valid_chunks_of_its_partition() -> None:
    channel = Channel(Budget(1000))
    channel.push(chunk(A, 0))
    channel.fail(A, CorruptRecords("t", 0, 3, "broken"))
    channel.push(chunk(B, 0))
    assert [channel.pop_now(), channel.pop_now()] != [None, None]
    with pytest.raises(CorruptRecords):
        channel.pop_now()
    assert channel.pop_now() is None


def test_an_interruption_precedes_chunks_and_is_raised_once() -> None:
    channel = Channel(Budget(1000))
    channel.push(chunk(A, 0))
    channel.interrupt(ConsumerError("now"))
    with pytest.raises(ConsumerError, match="now"):
        channel.pop_now()
    assert channel.pop_now() is not None


@simulated(range(30))
async def test_close_ends_every_reader_with_its_error() -> None:
    for error in (None, ConsumerError("over")):
        channel = Channel(Budget(1000))
        ends: list[object] = []

        async def read(channel: Channel = channel, ends: list[object] = ends) -> None:
            try:
                ends.append(await channel.pop())
            except ConsumerError as raised:
                ends.append(raised)

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(read())
            await asyncio.sleep(1)
            channel.close(error)
            channel.close(ConsumerError("a later reason"))
        assert [(type(end), str(end)) for end in ends] == [(type(error), str(error))] * 3
        with pytest.raises(ClosedError):
            channel.push(chunk(A))
        assert channel.closed
        assert not channel.has_room()


async def test_buffered_chunks_can_be_read_after_the_close() -> None:
    channel = Channel(Budget(1000))
    channel.push(chunk(A))
    channel.close()
    assert await channel.pop() is not None
    assert await channel.pop() is None


async def test_the_traceback_of_a_closed_channel_does_not_grow_with_readers() -> None:
    channel = Channel(Budget(1000))
    channel.close(ConsumerError("over"))
    lengths = set()
    for _ in range(10):
        with pytest.raises(ConsumerError, match="over") as caught:
            await channel.pop()
        lengths.add(len(list(traceback.walk_tb(caught.value.__traceback__))))
    assert len(lengths) == 1


@simulated(range(50))
async def test_a_cancelled_pop_loses_no_chunk() -> None:
    channel = Channel(Budget(10**6))
    got: list[int] = []

    async def read() -> None:
        while (chunk := await channel.pop()) is not None:
            got.append(chunk.offset)

    reader = asyncio.get_running_loop().create_task(read())
    for offset in range(0, 60, 3):
        await asyncio.sleep(0)
        channel.push(chunk(A, offset))
        if offset % 2:
            reader.cancel()
            await asyncio.wait({reader})
            reader = asyncio.get_running_loop().create_task(read())
    channel.close()
    await reader
    assert got == list(range(0, 60, 3))


async def test_a_reader_of_many_chunks_yields_to_other_tasks() -> None:
    channel = Channel(Budget(10**9))
    for offset in range(0, 3000, 3):
        channel.push(chunk(A, offset, size=10_000))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(other())
    for _ in range(1000):
        await channel.pop()
    task.cancel()
    assert 20 < turns < 200  # 10 MB at 256 KB a turn
