"""Messages of a stream with slow deserializers."""

import asyncio
from math import inf
from typing import Any

import pytest

from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.consumer.interceptors import Interceptor, Interceptors
from asyncconsumer.consumer.poison_policy import PoisonPolicy
from asyncconsumer.consumer.stream import ConsumerStream, DeliveryPolicy
from asyncconsumer.errors import ConnectFailed, DeserializationFailed
from asyncconsumer.events import EventBus
from asyncconsumer.records import decoding
from asyncconsumer.serdes import make_deserializer
from asyncconsumer.streams.batched import BatchedStream
from asyncconsumer.streams.messages import Message
from asyncconsumer.testing.virtual_time import simulated
from tests.support.chunks import A, B, chunk


class Fence:
    """A fence whose deadline is set by a test."""

    deadline = inf


class World:
    """A stream of two chunks, and its reader."""

    def __init__(
        self, key: Any = None, value: Any = None, *seen_by: Interceptor, closed: bool = True
    ) -> None:
        self.fence = Fence()
        self.channel = Channel(Budget(10**6))
        self.channel.push(chunk(A, 0))
        self.channel.push(chunk(B, 100))
        if closed:
            self.channel.close()
        self.stream = BatchedStream(self.channel, self.fence, asyncio.get_running_loop().time)
        how = DeliveryPolicy(
            make_deserializer(key),
            make_deserializer(value),
            Interceptors(seen_by),
            PoisonPolicy("raise", EventBus(), lambda offsets: None),
            commit=None,
            read_again=lambda offsets: None,
            select=lambda partitions: False,
        )
        self.reading: ConsumerStream[Any, Any] = ConsumerStream(self.stream, how)

    async def offsets(self) -> list[int]:
        return [message.offset async for message in self.reading]

    async def next_offset(self) -> int:
        return (await anext(self.reading)).offset

    def lose(self) -> None:
        self.channel.drop(A)
        self.stream.forget(A)


class Slow:
    """A deserializer that waits until a test lets it return, and reports its first call."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()

    async def __call__(self, data: bytes) -> int:
        self.asked.set()
        await self.let.wait()
        return len(data)


@pytest.mark.parametrize("requested", [None, bytes])
async def test_a_reader_without_a_policy_uses_the_iterator_of_the_stream(
    requested: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(requested, requested)
    looped: list[object] = []

    def loop(source: object, _: object) -> object:
        looped.append(source)
        return source

    monkeypatch.setattr(decoding, "Loop", loop)
    own: object = aiter(world.stream)
    assert aiter(world.reading) is own
    assert looped == [own]


@simulated(range(5))
async def test_key_and_value_have_their_own_deserializers() -> None:
    async def later(data: bytes) -> str:
        await asyncio.sleep(1)
        return f"{len(data)} bytes"

    for key, value in [(None, str), (None, later), (later, bytes.hex), (later, later)]:
        world = World(key, value)
        raw = [record async for record in World().stream]
        messages = [message async for message in world.reading]
        assert [message.offset for message in messages] == [0, 1, 2, 100, 101, 102]
        for message, record in zip(messages, raw, strict=True):
            assert isinstance(message, Message)
            assert record.value is not None
            made = f"{len(record.value)} bytes"
            expected = {str: record.value.decode(), later: made}.get(value, record.value.hex())
            assert message.value == expected


@simulated(range(20))
async def test_a_record_is_delivered_after_a_timeout_in_its_deserializer() -> None:
    slow = Slow()
    seen: list[int] = []

    class Counting(Interceptor):
        def on_consume(self, record: decoding.Record) -> decoding.Record:
            seen.append(record.offset)
            return record

    world = World(None, slow, Counting())
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(world.reading)
    assert world.stream.finished() == {A: 0}
    slow.let.set()
    assert await world.offsets() == [0, 1, 2, 100, 101, 102]
    assert seen == [0, 1, 2, 100, 101, 102]  # the interceptor sees each record once


@simulated(range(20))
async def test_records_are_redelivered_after_retriable_errors_only() -> None:
    troubles: list[Exception] = [ConnectFailed("r:1", "refused"), ValueError("bad")]

    def deserialize(data: bytes) -> bytes:
        if troubles:
            raise troubles.pop(0)
        return data

    world = World(None, deserialize)
    with pytest.raises(DeserializationFailed, match="refused") as excinfo:
        await anext(world.reading)
    assert excinfo.value.retriable
    with pytest.raises(DeserializationFailed, match=r"t\[0\]@0") as excinfo:
        await anext(world.reading)
    assert not excinfo.value.retriable
    assert await world.offsets() == [1, 2, 100, 101, 102]


@simulated(range(20))
async def test_records_lost_during_deserialization_are_not_delivered() -> None:
    slow = Slow()
    world = World(None, slow)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(world.offsets())
        await slow.asked.wait()
        world.lose()
        slow.let.set()
    assert reading.result() == [100, 101, 102]
    assert A not in world.stream.finished()


@simulated(range(20))
async def test_records_lost_after_a_timeout_are_not_redelivered() -> None:
    slow = Slow()
    world = World(None, slow)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await anext(world.reading)
    world.lose()
    slow.let.set()
    assert await world.offsets() == [100, 101, 102]


@simulated(range(20))
async def test_records_lost_after_an_error_are_not_redelivered() -> None:
    troubles = [ConnectFailed("r:1", "refused")]

    def deserialize(data: bytes) -> bytes:
        if troubles:
            raise troubles.pop()
        return data

    world = World(None, deserialize)
    with pytest.raises(DeserializationFailed, match="refused"):
        await anext(world.reading)
    world.lose()
    assert await world.offsets() == [100, 101, 102]


@simulated(range(20))
async def test_a_deserialized_record_is_held_while_the_fence_is_closed() -> None:
    slow = Slow()
    world = World(None, slow, closed=False)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(world.next_offset())
        await slow.asked.wait()
        world.fence.deadline = -inf
        slow.let.set()
        await asyncio.sleep(5)
        assert not reading.done()
        world.fence.deadline = inf
    assert reading.result() == 0


@simulated(range(20))
async def test_a_closed_stream_discards_records_after_the_deadline() -> None:
    slow = Slow()
    world = World(None, slow)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(world.offsets())
        await slow.asked.wait()
        world.fence.deadline = -inf
        slow.let.set()
    assert reading.result() == []


@simulated(range(5))
async def test_two_tasks_do_not_read_the_same_record() -> None:
    slow = Slow()
    world = World(None, slow)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(world.offsets())
        await slow.asked.wait()
        with pytest.raises(RuntimeError, match="already waits for the next"):
            await anext(world.reading)
        slow.let.set()
    assert reading.result() == [0, 1, 2, 100, 101, 102]
