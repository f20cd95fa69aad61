import asyncio
from collections.abc import Mapping
from math import inf

import pytest

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.buffer.chunk import Chunk
from asyncconsumer.errors import ConsumerError, CorruptRecords
from asyncconsumer.records import decoding
from asyncconsumer.streams.at_most_once import AtMostOnceStream
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka.log import Writer, make_batch
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.chunks import A, B, chunk


class Gate:
    """A fence that a test opens and closes."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    @property
    def deadline(self) -> float:
        return inf if self.open.is_set() else -inf


def stream_of(*offsets: int) -> tuple[Channel, Stream]:
    channel = Channel(Budget(10**6))
    for offset in offsets:
        channel.push(chunk(A, offset))
    return channel, Stream(channel)


async def test_a_request_for_the_next_record_acknowledges_the_previous_one() -> None:
    channel, stream = stream_of(0, 3)
    channel.close()
    progress = [stream.finished()]
    progress += [stream.finished() async for _record in stream]
    progress.append(stream.finished())
    offsets = [offsets.get(A) for offsets in progress]
    assert offsets == [None, 0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("jump_at", [0, 1, 2, 3])
async def test_a_jump_of_another_clock_loses_no_record(jump_at: int) -> None:
    """The deadline also depends on the wall clock, which may be set while the loop runs."""
    loop = asyncio.get_running_loop()
    jump = 0.0
    channel = Channel(Budget(10**6))
    channel.push(chunk(A, 0))
    channel.push(chunk(A, 3))
    channel.close()
    stream = Stream(channel, Gate(), lambda: loop.time() + jump)
    offsets = []
    async for record in stream:
        offsets.append(record.offset)
        jump = 10.0 if record.offset == jump_at else 0.0
    assert offsets == [0, 1, 2, 3, 4, 5]


async def test_a_chunk_is_acknowledged_when_the_next_is_requested() -> None:
    channel, stream = stream_of(0, 3)
    channel.close()
    progress = []
    async for records in stream.chunks():
        progress.append(stream.finished()[A])
        list(records)
    assert progress == [0, 3]
    assert stream.finished() == {A: 6}
    assert channel.buffered_bytes == 0


async def test_each_chunk_is_an_arrow_batch() -> None:
    pytest.importorskip("pyarrow")
    channel, stream = stream_of(0, 3)
    channel.close()
    assert [batch.column("offset").to_pylist() async for batch in stream.arrow()] == [
        [0, 1, 2],
        [3, 4, 5],
    ]


async def test_a_forgotten_partition_is_neither_read_nor_committed() -> None:
    channel, stream = stream_of(0)
    channel.push(chunk(B, 0))
    records = aiter(stream)
    assert (await anext(records)).partition == 0
    channel.drop(A)
    stream.forget(A)
    assert A not in stream.finished()
    assert (await anext(records)).partition == 1
    assert stream.finished() == {B: 0}


async def test_an_interruption_is_raised_once_for_the_reader() -> None:
    _, stream = stream_of(0)
    stream.interrupt(ConsumerError("a rebalance failed"))
    with pytest.raises(ConsumerError):
        await anext(aiter(stream))
    assert (await anext(aiter(stream))).offset == 0


@simulated(range(30))
async def test_no_record_is_delivered_while_the_fence_is_closed() -> None:
    channel, gate = Channel(Budget(10**6)), Gate()
    stream = Stream(channel, gate, asyncio.get_running_loop().time)
    got: list[int] = []

    async def read() -> None:
        got.extend([record.offset async for record in stream])

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        gate.open.clear()
        channel.push(chunk(A, 0))
        channel.push(chunk(B, 100))
        await asyncio.sleep(10)
        assert got == []
        channel.drop(A)  # lost meanwhile
        stream.forget(A)
        gate.open.set()
        channel.close()
    assert got == [100, 101, 102]


async def test_a_partition_lost_during_a_suspension_is_not_read() -> None:
    now = 0.0
    channel, gate = Channel(Budget(10**6)), Gate()
    channel.push(chunk(A, 0))
    channel.push(chunk(B, 0))
    stream = Stream(channel, gate, clock=lambda: now)
    records = aiter(stream)
    records.deadline = 5.0
    assert (await anext(records)).partition == 0
    records.deadline = 5.0
    now = 10.0  # no task has run meanwhile
    gate.open.clear()
    waiting = asyncio.get_running_loop().create_task(anext(records))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert stream.finished() == {
        A: 1
    }  # the request for the next record acknowledges the previous one
    channel.drop(A)
    stream.forget(A)
    gate.open.set()
    assert (await waiting).partition == 1


@simulated(range(5))
async def test_a_closed_fence_is_respected_before_the_known_deadline() -> None:
    loop = asyncio.get_running_loop()
    channel, gate = Channel(Budget(10**6)), Gate()
    channel.push(chunk(A, 0))
    records = aiter(Stream(channel, gate, clock=loop.time))
    assert (await anext(records)).offset == 0
    gate.open.clear()  # the deadline was infinite before
    await asyncio.sleep(0.1)
    waiting = loop.create_task(anext(records))
    await asyncio.sleep(10)
    assert not waiting.done()
    gate.open.set()
    assert (await waiting).offset == 1


async def test_a_chunk_continues_after_its_deadline_is_checked() -> None:
    channel, gate = Channel(Budget(10**6)), Gate()
    channel.push(chunk(A, 0))
    channel.close()
    stream = Stream(channel, gate, asyncio.get_running_loop().time)
    records = aiter(stream)
    offsets = []
    async for record in records:
        offsets.append(record.offset)
        assert stream.finished() == {A: record.offset}
        records.deadline = 0.0  # in the past
    assert offsets == [0, 1, 2]
    assert stream.finished() == {A: 3}


async def test_a_closed_stream_ends_while_the_fence_is_closed() -> None:
    channel, gate = Channel(Budget(10**6)), Gate()
    gate.open.clear()
    channel.push(chunk(A, 0))
    channel.close()
    assert [
        record.offset async for record in Stream(channel, gate, asyncio.get_running_loop().time)
    ] == []


@simulated(range(5))
async def test_a_timeout_at_a_closed_fence_loses_no_record() -> None:
    gate, channel = Gate(), Channel(Budget(10**6))
    stream = Stream(channel, gate, asyncio.get_running_loop().time)
    channel.push(chunk(A, 0))
    channel.push(chunk(A, 3))
    gate.open.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await anext(aiter(stream))
    gate.open.set()
    assert (await anext(aiter(stream))).offset == 0
    assert stream.finished() == {A: 0}


@simulated(range(5))
async def test_arrow_batches_of_one_chunk_stop_at_the_fence() -> None:
    pytest.importorskip("pyarrow")
    gate, channel = Gate(), Channel(Budget(10**6))
    channel.push(chunk(A, 0))
    got: list[int] = []

    async def read() -> None:
        async for batch in Stream(channel, gate).arrow(max_rows=1):
            got.extend(batch.column("offset").to_pylist())
            if len(got) == 1:
                gate.open.clear()

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        await asyncio.sleep(10)
        assert got == [0]
        gate.open.set()
        await asyncio.sleep(1)
        channel.close()
    assert got == [0, 1, 2]


async def test_the_next_arrow_batch_acknowledges_the_previous_one() -> None:
    pytest.importorskip("pyarrow")
    channel = Channel(Budget(10**6))
    channel.push(chunk(A, 0))
    stream = Stream(channel)
    batches = stream.arrow(max_rows=1)
    for done in range(3):
        assert (await anext(batches)).column("offset").to_pylist() == [done]
        assert stream.finished() == {A: done}


async def test_corrupt_records_are_raised_repeatedly_and_not_acknowledged() -> None:
    writer = Writer(*A, epoch=5, incarnation=1)
    good, bad, after = (bytearray(make_batch(writer, offset, 3, 0).data) for offset in (0, 3, 6))
    bad[-1] ^= 0xFF
    data = bytes(good + bad + after)
    records = decoding.Records(data, topic=A.topic, partition=A.partition, offset=0)
    channel = Channel(Budget(10**6))
    channel.push(Chunk(A, 0, 9, 1, 5, len(data), records))
    channel.push(chunk(A, 9))
    stream = Stream(channel)
    assert [(await anext(aiter(stream))).offset for _ in range(3)] == [0, 1, 2]
    for _ in range(5):
        with pytest.raises(CorruptRecords):
            await anext(aiter(stream))
        assert stream.finished()[A] <= 3


# --- on hold -------------------------------------------------------------------------------------


async def test_a_held_partition_is_not_read_in_the_middle_of_a_chunk() -> None:
    channel = Channel(Budget(10**6))
    channel.push(chunk(A, 0))
    channel.push(chunk(B, 100))
    stream = Stream(channel)
    records = aiter(stream)
    assert (await anext(records)).offset == 0
    stream.hold([A])
    assert [(await anext(records)).offset for _ in range(3)] == [100, 101, 102]
    assert stream.finished() == {A: 1, B: 102}
    assert stream.position(A) == 1
    stream.release([A])
    channel.push(chunk(A, 3))
    channel.close()
    assert [record.offset async for record in stream] == [1, 2, 3, 4, 5]
    assert stream.finished() == {A: 6, B: 103}
    assert channel.buffered_bytes == 0


async def test_a_lost_held_chunk_is_dropped_and_its_bytes_released() -> None:
    budget = Budget(10**6)
    channel = Channel(budget)
    channel.push(chunk(A, 0))
    stream = Stream(channel)
    records = aiter(stream)
    await anext(records)
    stream.hold([A])
    waiting = asyncio.get_running_loop().create_task(anext(records))
    await asyncio.sleep(0)
    channel.drop(A)
    stream.forget(A)
    channel.push(chunk(A, 50))
    assert (await waiting).offset == 50
    channel.clear()
    stream.drop()
    assert channel.buffered_bytes == 0


async def test_settled_waits_until_the_next_record_is_requested() -> None:
    channel, done, go = Channel(Budget(10**6)), asyncio.Event(), asyncio.Event()
    channel.push(chunk(A, 0))
    stream = Stream(channel)
    await stream.settled([A])  # no record was delivered

    async def read() -> None:
        async for _record in stream:
            done.set()
            await go.wait()

    loop = asyncio.get_running_loop()
    reading = loop.create_task(read())
    await done.wait()
    stream.hold([A])
    await stream.settled([B])
    settling = loop.create_task(stream.settled([A]))
    await asyncio.sleep(0)
    assert not settling.done()
    assert stream.finished() == {A: 0}
    go.set()
    await settling
    assert stream.finished() == {A: 1}
    channel.close()
    await reading
    stream.forget(A)


async def test_settled_does_not_wait_for_a_finished_reader() -> None:
    channel = Channel(Budget(10**6))
    channel.push(chunk(A, 0))
    stream = Stream(channel)
    await anext(aiter(stream))
    stream.hold([A])
    await stream.settled([A])  # this task is the reader
    stream.release([A])

    async def read_one() -> None:
        await anext(aiter(stream))

    channel.push(chunk(B, 0))
    stream.drop()
    await asyncio.get_running_loop().create_task(read_one())
    stream.hold([B])
    await stream.settled([B])
    stream.forget(B)


@simulated(range(3))
async def test_a_slow_reader_of_chunks_gets_each_chunk_once() -> None:
    loop = asyncio.get_running_loop()
    channel = Channel(Budget(10**6))
    for offset in (0, 3, 6):
        channel.push(chunk(A, offset))
    channel.close()
    taken = []
    async for records in Stream(channel, Gate(), loop.time).chunks():
        taken.append([record.offset for record in records])
        await asyncio.sleep(1)
    assert taken == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


async def test_a_held_chunk_is_acknowledged_up_to_its_last_read_record() -> None:
    channel = Channel(Budget(10**6))
    channel.push(chunk(A, 0))
    channel.push(chunk(B, 0))
    stream = Stream(channel)
    records = aiter(stream)
    await anext(records)
    stream.hold([A])
    await anext(records)  # of the other partition
    stream.hold([B])
    stream.release([A])
    waiting = asyncio.get_running_loop().create_task(anext(records))
    assert (await waiting).offset == 1
    assert stream.finished() == {A: 1, B: 1}
    channel.clear()
    stream.forget(A)
    stream.forget(B)


async def test_arrow_batches_of_a_held_partition_stop_within_a_chunk() -> None:
    channel = Channel(Budget(10**6))
    channel.push(chunk(A, 0))
    channel.close()
    stream = Stream(channel)
    batches = stream.arrow(max_rows=1)
    assert (await anext(batches)).num_rows == 1
    stream.hold([A])
    with pytest.raises(StopAsyncIteration):
        await anext(batches)
    assert stream.finished() == {A: 1}
    stream.forget(A)


@simulated(range(5))
async def test_at_most_once_does_not_deliver_uncommitted_lost_records() -> None:
    """At-most-once streams commit before delivery. A rebalance may report the loss much later."""
    asked: list[TopicPartition] = []

    async def commit(offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        asked.extend(offsets)
        return {tp: offset for tp, offset in offsets.items() if tp != A}

    channel = Channel(Budget(10**6))
    stream = AtMostOnceStream(channel, commit=commit)
    channel.push(chunk(A, 0))
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(anext(aiter(stream)))
        await asyncio.sleep(10)
        assert set(asked) == {A}
        assert not waiting.done()
        stream.forget(A)
        channel.drop(A)
        channel.push(chunk(B, 0))
        assert (await waiting).partition == B.partition
