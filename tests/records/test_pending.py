"""Records that `AsyncRecords` put back, because their messages were not ready."""

import asyncio
import contextlib
import types
from collections.abc import Callable, Generator
from types import ModuleType
from typing import Any

import pytest

from asyncconsumer.errors import CorruptRecords
from tests.support.record_encoder import Row, batch

pytestmark = pytest.mark.fast


class Retriable(Exception):
    retriable = True


class Readers:
    """An `AsyncRecords` whose refill returns the answers of a list: records, None or errors."""

    def __init__(self, decoder: ModuleType, **options: Any) -> None:
        self.decoder = decoder
        self.answers: list[Any] = []
        self.asked = 0
        self.stream: Any = decoder.AsyncRecords(self.refill)
        self.stream.builder = decoder.MessageBuilder(**options)

    async def refill(self) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def add(
        self,
        first: int,
        count: int = 2,
        *,
        broken: bool = False,
        partition: int = 0,
        bodies: object = None,
    ) -> Any:
        rows = [Row(first + i, b"%d" % (first + i)) for i in range(count)]
        data = bytearray(batch(rows, codec=0 if bodies is None else 1))
        if broken:
            data[-1] ^= 1
        records = self.decoder.Records(bytes(data), topic="t", partition=partition, bodies=bodies)
        self.answers.append(records)
        return records

    async def rest(self) -> list[Any]:
        return [message.value async for message in self.stream]


class Failing:
    """A deserializer that raises an error a number of times for one value."""

    def __init__(self, bad: bytes, error: BaseException, times: int = 1000) -> None:
        self.bad, self.error, self.times = bad, error, times

    def __call__(self, data: bytes) -> int:
        if data == self.bad and self.times > 0:
            self.times -= 1
            raise self.error
        return int(data)


async def later(data: bytes) -> int:
    await asyncio.sleep(0)
    return int(data)


# --- records of another partition in between -----------------------------------------------------


async def test_a_skipped_corrupt_batch_skips_no_pending_record(decoder: ModuleType) -> None:
    """The pending record is in a parked chunk, and the corrupt batch in another partition."""
    readers = Readers(decoder, value=Failing(b"0", Retriable(), times=1))
    parked = readers.add(0)
    readers.add(10, broken=True)
    with pytest.raises(Retriable):
        await anext(readers.stream)

    async def skip(error: Exception) -> None:
        assert isinstance(error, CorruptRecords)
        readers.stream.current.skip_corrupt()

    readers.stream.unreadable = skip
    readers.stream.deadline = 0.0  # so that refill is called before the next record
    readers.answers.append(parked)
    assert (await anext(readers.stream)).value == 0
    readers.stream.deadline = float("inf")
    assert await readers.rest() == [1]


async def test_a_message_is_not_delivered_for_another_partition(decoder: ModuleType) -> None:
    """The records of the message are freed, and other records may have their address."""

    async def lose(data: bytes) -> object:
        if (stream := readers.stream).current.partition == 0:
            stream.current.close()
        return await later(data), stream.current.partition

    readers = Readers(decoder, value=lose)
    readers.add(0, partition=0)
    for _ in range(3):
        readers.answers.append(decoder.Records(b"", topic="t", partition=5))
    partitions = iter(range(1, 50))

    async def refill() -> Any:
        if not readers.answers and (partition := next(partitions, None)) is not None:
            readers.add(0, 1, partition=partition)
        return await Readers.refill(readers)

    builder = readers.stream.builder
    readers.stream = decoder.AsyncRecords(refill)
    readers.stream.builder = builder
    messages = [message async for message in readers.stream]
    assert [message.value for message in messages] == [(0, n) for n in range(1, 50)]
    assert [message.partition for message in messages] == list(range(1, 50))


async def test_a_policy_is_applied_once_to_parked_records(decoder: ModuleType) -> None:
    readers = Readers(decoder, value=Failing(b"0", ValueError("no")))
    parked = readers.add(0)
    readers.add(10)
    errors: list[Exception] = []

    async def skip(error: Exception) -> None:
        await asyncio.sleep(0)
        errors.append(error)
        readers.stream.deadline = 0.0  # like `Stream.hold`

    readers.stream.unreadable = skip
    assert (await anext(readers.stream)).value == 10
    assert parked.next_offset == 1
    readers.stream.deadline = float("inf")
    assert (await anext(readers.stream)).value == 11
    readers.answers.append(parked)
    assert await readers.rest() == [1]
    assert len(errors) == 1


async def test_an_error_is_raised_once_for_parked_records(decoder: ModuleType) -> None:
    readers = Readers(decoder, value=Failing(b"0", ValueError("no")))
    parked = readers.add(0)
    readers.add(10)
    with pytest.raises(ValueError, match="no"):
        await anext(readers.stream)
    assert parked.next_offset == 0  # not acknowledged before the next request
    readers.stream.deadline = 0.0
    assert (await anext(readers.stream)).value == 10
    assert parked.next_offset == 1
    readers.stream.deadline = float("inf")
    readers.answers.append(parked)
    assert await readers.rest() == [11, 1]


# --- code that runs meanwhile --------------------------------------------------------------------


async def pending_awaitable(decoder: ModuleType) -> Any:
    readers = Readers(decoder, value=lambda data: later(data) if data == b"1" else int(data))
    readers.add(0)
    assert (await anext(readers.stream)).value == 0
    assert readers.stream.take([], 5) == 0
    stream, readers.stream = readers.stream, None
    return stream


async def test_freeing_a_stream_keeps_the_current_exception(decoder: ModuleType) -> None:
    """The stream is freed while an exception is set, and closes its coroutine."""
    streams = [await pending_awaitable(decoder)]
    with pytest.raises(ZeroDivisionError):
        print(streams.pop(), 1 // 0)  # noqa: T201 - never reached


class Account:
    """An account of bodies that calls a function before each body is decompressed."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function

    def make_room(self, reader: object) -> None:
        self.function()

    def hold(self, reader: object, size: int, again: bool) -> int:
        return size

    def release(self, reader: object) -> None: ...


async def test_the_builder_may_be_removed_while_a_record_is_read(decoder: ModuleType) -> None:
    def remove() -> None:
        readers.stream.builder = None

    readers = Readers(decoder, value=int)
    readers.add(0, bodies=Account(remove))
    items = [item async for item in readers.stream]
    assert [item.value for item in items] == [0, b"1"]


class Remover:
    """A value whose finalizer removes the builder of a stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __del__(self) -> None:
        self.stream.builder = None


async def test_a_finalizer_may_remove_the_builder(decoder: ModuleType) -> None:
    async def read(data: bytes) -> object:
        await asyncio.sleep(0)
        readers.stream.current.close()  # so that this message is dropped
        return Remover(readers.stream)

    readers = Readers(decoder, value=read)
    readers.add(0)
    readers.add(10)
    assert await readers.rest() == [b"10", b"11"]


async def test_the_builder_may_be_replaced_while_a_message_is_awaited(decoder: ModuleType) -> None:
    async def read(data: bytes) -> int:
        await asyncio.sleep(0)
        readers.stream.builder = decoder.MessageBuilder(value=bytes.decode)
        return int(data)

    readers = Readers(decoder, value=read)
    readers.add(0)
    assert await readers.rest() == ["0", "1"]


@pytest.mark.parametrize("waits", [False, True])
async def test_the_position_stays_before_a_record_that_failed_in_closed_records(
    decoder: ModuleType, waits: bool
) -> None:
    def read(data: bytes) -> object:
        if data == b"1":
            records.close()
            if not waits:
                raise Retriable
            return later(data)
        return int(data)

    readers = Readers(decoder, value=read)
    records = readers.add(0, 3)
    assert (await anext(readers.stream)).value == 0
    with contextlib.suppress(Retriable, StopAsyncIteration):
        await anext(readers.stream)
    assert (records.next_offset, records.closed) == (1, True)


# --- errors and awaitables -----------------------------------------------------------------------


async def test_errors_of_refill_are_not_passed_to_policies(decoder: ModuleType) -> None:
    asked: list[Exception] = []

    def ask(error: Exception) -> Any:
        asked.append(error)

    readers = Readers(decoder, value=int)
    readers.add(0)
    readers.answers.append(ValueError("refill"))
    readers.stream.recover = readers.stream.unreadable = ask
    assert (await anext(readers.stream)).value == 0
    assert (await anext(readers.stream)).value == 1
    with pytest.raises(ValueError, match="refill"):
        await anext(readers.stream)
    assert asked == []


@pytest.mark.parametrize("waits", [False, True])
async def test_an_error_of_a_deserializer_is_not_passed_to_recover(
    decoder: ModuleType, waits: bool
) -> None:
    recovered: list[Exception] = []
    unreadable: list[Exception] = []

    async def failing(data: bytes) -> None:
        raise ValueError("no")

    def recover(error: Exception) -> bool:
        recovered.append(error)
        return True

    sync = Failing(b"0", ValueError("no"))
    readers = Readers(decoder, value=failing if waits else sync)
    readers.add(0)
    readers.stream.recover = recover
    readers.stream.unreadable = unreadable.append  # returns None, so the error is raised
    with pytest.raises(ValueError, match="no"):
        await anext(readers.stream)
    assert (recovered, len(unreadable)) == ([], 1)


async def test_an_interrupt_is_not_passed_to_recover(decoder: ModuleType) -> None:
    asked: list[BaseException] = []

    def ask(error: BaseException) -> bool:
        asked.append(error)
        return True

    def interrupt() -> None:
        raise KeyboardInterrupt

    readers = Readers(decoder)
    readers.add(0, bodies=Account(interrupt))
    readers.stream.recover = ask
    with pytest.raises(KeyboardInterrupt):
        await anext(readers.stream)
    assert asked == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()])
async def test_take_raises_an_interrupt_immediately(
    decoder: ModuleType, error: BaseException
) -> None:
    readers = Readers(decoder, value=Failing(b"2", error, times=1))
    readers.add(0, 4)
    items = [await anext(readers.stream)]
    with pytest.raises(type(error)):
        readers.stream.take(items, 10)
    assert readers.stream.take(items, 10) == 2
    assert [item.value for item in items] == [0, 1, 2, 3]


async def test_a_generator_based_coroutine_is_awaited(decoder: ModuleType) -> None:
    @types.coroutine
    def read(data: bytes) -> Generator[None, None, int]:
        yield
        return int(data)

    readers = Readers(decoder, value=read)
    readers.add(0)
    assert await readers.rest() == [0, 1]


class Closable:
    """An awaitable with a method `close` that is not the one of a coroutine."""

    closed = False

    def __await__(self) -> Generator[Any, Any, int]:
        return later(b"1").__await__()

    def close(self) -> None:
        self.closed = True


async def test_only_coroutines_are_closed(decoder: ModuleType) -> None:
    key = Closable()
    readers = Readers(decoder, key=lambda _: key, value=Failing(b"0", ValueError("no")))
    readers.add(0)
    with pytest.raises(ValueError, match="no"):
        await anext(readers.stream)
    assert not key.closed


# --- deadlines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sleeps", [0, 1, 2])
async def test_new_records_are_never_late(decoder: ModuleType, sleeps: int) -> None:
    """Otherwise a waiting refill would be called forever after the deadline."""
    readers = Readers(decoder, value=int)
    records = readers.add(0)

    async def refill() -> Any:
        readers.asked += 1
        for _ in range(sleeps):
            await asyncio.sleep(0)
        return records if not records.closed and readers.asked < 10 else None

    readers.stream = decoder.AsyncRecords(refill)
    readers.stream.builder = decoder.MessageBuilder(value=int)
    readers.stream.deadline = 0.0
    assert (await anext(readers.stream)).value == 0
    assert readers.asked == 1
    assert (await anext(readers.stream)).value == 1
    assert readers.asked == 2


@pytest.mark.parametrize("sleeps", [0, 1])
async def test_a_message_after_the_deadline_is_not_delivered(
    decoder: ModuleType, sleeps: int
) -> None:
    async def read(data: bytes) -> int:
        for _ in range(sleeps):
            await asyncio.sleep(0)
        readers.stream.deadline = 0.0  # the partition is put on hold
        return int(data)

    readers = Readers(decoder, value=read)
    readers.add(0)
    readers.answers.append(None)
    assert await readers.rest() == []
    assert readers.asked == 2
