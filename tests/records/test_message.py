"""Messages that `AsyncRecords` delivers: deserializers, interceptors, policies, limits, batches."""

import asyncio
import contextlib
import gc
import pickle
import tracemalloc
import warnings
import weakref
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, get_origin

import pytest

from asyncconsumer.errors import ConfigError, CorruptRecords
from asyncconsumer.records import decoding
from asyncconsumer.records._pure import AsyncRecords, Records
from tests.support.record_encoder import Row, batch, rows

pytestmark = pytest.mark.fast

COUNT = 6


class Retriable(Exception):
    retriable = True


def numbered(count: int = COUNT, first: int = 0) -> bytes:
    return batch([Row(first + i, b"%d" % (first + i)) for i in range(count)])


def stream_of(decoder: ModuleType, *sets: bytes, **options: Any) -> Any:
    answers = [decoder.Records(data, topic="t", partition=3) for data in sets or (numbered(),)]

    async def refill() -> Records | None:
        return answers.pop(0) if answers else None

    stream: AsyncRecords = decoder.AsyncRecords(refill)
    stream.builder = decoder.MessageBuilder(**options)
    return stream


async def values(stream: Any) -> list[Any]:
    return [message.value async for message in stream]


class Failing:
    """A deserializer that fails for one value a number of times."""

    def __init__(self, bad: bytes, error: BaseException, times: int = 1000) -> None:
        self.bad, self.error, self.times = bad, error, times
        self.calls: list[bytes] = []

    def __call__(self, data: bytes) -> int:
        self.calls.append(data)
        if data == self.bad and self.times > 0:
            self.times -= 1
            raise self.error
        return int(data)


async def test_deserializers_create_messages(decoder: ModuleType) -> None:
    stream = stream_of(decoder, numbered(2), key=bytes.decode, value=int)
    first, second = [message async for message in stream]
    assert (first.topic, first.partition, first.offset, first.timestamp) == ("t", 3, 0, 1.7e12)
    assert (first.key, first.value, second.value) == ("key", 0, 1)
    assert first.record.value == b"0"
    assert (first.headers, first.timestamp_type) == ((), 0)


async def test_records_without_deserializers_are_delivered_unchanged(decoder: ModuleType) -> None:
    stream = stream_of(decoder)
    assert {type(item) async for item in stream} == {decoder.Record}


async def test_nulls_are_not_deserialized(decoder: ModuleType) -> None:
    stream = stream_of(decoder, batch([Row(0, None, None)]), key=int, value=int)
    message = await anext(stream)
    assert (message.key, message.value) == (None, None)


async def test_a_deserializer_may_take_the_record(decoder: ModuleType) -> None:
    stream = stream_of(decoder, value=lambda record: record.offset + 100, value_takes_record=True)
    assert await values(stream) == [100, 101, 102, 103, 104, 105]


@pytest.mark.parametrize("part", ["key", "value"])
async def test_awaitables_are_awaited(decoder: ModuleType, part: str) -> None:
    async def later(data: bytes) -> str:
        await asyncio.sleep(0)
        return data.decode()

    stream = stream_of(decoder, **{part: later})
    expected = ["key"] * COUNT if part == "key" else [str(i) for i in range(COUNT)]
    assert [getattr(message, part) async for message in stream] == expected


async def test_a_future_is_awaited(decoder: ModuleType) -> None:
    def future(data: bytes) -> Awaitable[int]:
        made: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        made.get_loop().call_soon(made.set_result, int(data))
        return made

    assert await values(stream_of(decoder, value=future)) == list(range(COUNT))


async def test_a_record_is_undelivered_while_its_message_is_awaited(decoder: ModuleType) -> None:
    seen: list[Any] = []

    async def later(data: bytes) -> int:
        await asyncio.sleep(0)
        assert stream.current is not None
        seen.append((stream.current.next_offset, stream.in_flight, stream.is_waiting))
        return int(data)

    stream = stream_of(decoder, value=later)
    assert await values(stream) == list(range(COUNT))
    assert seen == [(offset, False, True) for offset in range(COUNT)]
    assert not stream.is_waiting


async def test_a_cancelled_wait_loses_no_record(decoder: ModuleType) -> None:
    async def slow(data: bytes) -> int:
        await asyncio.sleep(0.001 if slow_at and int(data) in slow_at else 0)
        slow_at.discard(int(data))
        return int(data)

    slow_at = {0, 3, 5}
    got: list[int] = []
    stream = stream_of(decoder, value=slow)
    while len(got) < COUNT:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                got.append((await anext(stream)).value)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                got.append((await anext(stream)).value)
    assert got == list(range(COUNT))


async def test_another_task_is_refused_while_a_message_is_awaited(decoder: ModuleType) -> None:
    async def forever(data: bytes) -> int:
        await asyncio.Event().wait()
        return 0

    stream = stream_of(decoder, value=forever)
    reader = asyncio.ensure_future(stream.__anext__())  # noqa: TID251 - cancelled below
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="already waits"):
        await anext(stream)
    with pytest.raises(RuntimeError, match="already waits"):
        stream.take([], 5)
    reader.cancel()
    await asyncio.wait([reader])


async def test_closed_records_are_not_delivered_after_a_wait(decoder: ModuleType) -> None:
    """The partition was lost while the deserializer waited."""

    async def lose(data: bytes) -> int:
        await asyncio.sleep(0)
        if data == b"2":
            assert stream.current is not None
            stream.current.close()
        return int(data)

    stream = stream_of(decoder, numbered(), numbered(2, 50), value=lose)
    assert await values(stream) == [0, 1, 50, 51]


async def test_a_deserializer_may_close_its_records(decoder: ModuleType) -> None:
    def lose(data: bytes) -> int:
        if data == b"2":
            assert stream.current is not None
            stream.current.close()
        return int(data)

    stream = stream_of(decoder, numbered(), numbered(2, 50), value=lose)
    assert await values(stream) == [0, 1, 2, 50, 51]


# --- errors --------------------------------------------------------------------------------------


async def test_an_error_is_raised_and_the_next_record_follows(decoder: ModuleType) -> None:
    stream = stream_of(decoder, value=Failing(b"2", ValueError("no")))
    assert [(await anext(stream)).value for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="no"):
        await anext(stream)
    assert stream.current is not None
    assert stream.current.next_offset == 2  # not acknowledged before the next request
    assert not stream.in_flight
    assert await values(stream) == [3, 4, 5]


@pytest.mark.parametrize("error", [Retriable(), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_a_record_is_retried_after_a_temporary_error(
    decoder: ModuleType, error: BaseException
) -> None:
    stream = stream_of(decoder, value=Failing(b"2", error, times=2))
    assert [(await anext(stream)).value for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(type(error)):
            await anext(stream)
    assert await values(stream) == [2, 3, 4, 5]


async def test_an_awaitable_may_fail(decoder: ModuleType) -> None:
    failing = Failing(b"2", ValueError("no"))

    async def later(data: bytes) -> int:
        await asyncio.sleep(0)
        return failing(data)

    stream = stream_of(decoder, value=later)
    assert [(await anext(stream)).value for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="no"):
        await anext(stream)
    assert await values(stream) == [3, 4, 5]


async def test_fail_raises_the_error_that_users_see(decoder: ModuleType) -> None:
    def fail(error: BaseException, record: Any, part: str) -> None:
        raise LookupError(f"{part} of {record.offset}") from error

    stream = stream_of(decoder, value=Failing(b"1", ValueError("no")), fail=fail)
    await anext(stream)
    with pytest.raises(LookupError, match="value of 1") as caught:
        await anext(stream)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("bad", [b"0", b"2", b"5"])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_policy_skips_unreadable_records(
    decoder: ModuleType, bad: bytes, waits: bool
) -> None:
    failing = Failing(bad, ValueError("no"))
    skipped: list[Any] = []

    async def later(data: bytes) -> int:
        await asyncio.sleep(0)
        return failing(data)

    async def skip(error: Exception) -> None:
        await asyncio.sleep(0)
        assert stream.current is not None
        skipped.append((str(error), stream.current.next_offset))

    stream = stream_of(decoder, value=later if waits else failing)
    stream.unreadable = skip
    assert await values(stream) == [i for i in range(COUNT) if i != int(bad)]
    assert skipped == [("no", int(bad))]  # the record is undelivered meanwhile


async def test_a_policy_that_was_cancelled_is_applied_again(decoder: ModuleType) -> None:
    finished: list[str] = []

    async def skip(error: Exception) -> None:
        await asyncio.sleep(0.001)
        finished.append(str(error))

    stream = stream_of(decoder, value=Failing(b"0", ValueError("no")))
    stream.unreadable = skip
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(stream)
    assert finished == []
    assert await values(stream) == [1, 2, 3, 4, 5]
    assert finished == ["no"]


async def test_a_policy_may_raise_the_error(decoder: ModuleType) -> None:
    stream = stream_of(decoder, value=Failing(b"0", ValueError("no")))
    stream.unreadable = lambda error: None
    with pytest.raises(ValueError, match="no"):
        await anext(stream)
    assert await values(stream) == [1, 2, 3, 4, 5]


async def test_a_policy_may_skip_corrupt_batches(decoder: ModuleType) -> None:
    broken = bytearray(numbered(2, 6))
    broken[-1] ^= 1
    errors: list[int] = []

    async def skip(error: Exception) -> None:
        assert isinstance(error, CorruptRecords)
        errors.append(error.offset)
        assert stream.current is not None
        stream.current.skip_corrupt()

    stream = stream_of(decoder, numbered() + bytes(broken), numbered(1, 8), value=int)
    stream.unreadable = skip
    assert await values(stream) == [0, 1, 2, 3, 4, 5, 8]
    assert errors == [6]


# --- interceptors --------------------------------------------------------------------------------


async def test_interceptors_see_each_record_once(decoder: ModuleType) -> None:
    seen: list[int] = []

    def see(record: Any) -> Any:
        seen.append(record.offset)
        fields = record.topic, record.partition, record.offset, record.timestamp
        return decoder.Record(*fields, 0, record.key, record.value + b"0")

    async def later(data: bytes) -> int:
        await asyncio.sleep(0.001)
        return int(data)

    stream = stream_of(decoder, value=later, interceptors=(see,))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(stream)
    assert await values(stream) == [0, 10, 20, 30, 40, 50]
    assert seen == list(range(COUNT))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda record: 1 / 0,
        lambda record: "no record",
        lambda record: type(record)("other", record.partition, record.offset),
        lambda record: type(record)(record.topic, record.partition, record.offset + 1),
    ],
)
async def test_a_wrong_interceptor_changes_no_record(
    decoder: ModuleType, wrong: Callable[[Any], Any]
) -> None:
    failures: list[int] = []
    stream = stream_of(
        decoder,
        interceptors=(wrong,),
        intercept_failed=lambda error, record: failures.append(record.offset),
    )
    assert await values(stream) == [b"%d" % i for i in range(COUNT)]
    assert failures == list(range(COUNT))


# --- limits and many at once ---------------------------------------------------------------------


async def test_the_remaining_count_limits_the_records(decoder: ModuleType) -> None:
    asked: list[int] = []
    answers = [decoder.Records(numbered(), topic="t", partition=0)]

    async def refill() -> Records | None:
        asked.append(stream.remaining)
        return answers.pop() if answers else None

    stream: AsyncRecords = decoder.AsyncRecords(refill)
    stream.remaining = 4
    assert [record.offset async for record in stream] == [0, 1, 2, 3]
    assert asked == [4, 0]


async def test_take_appends_many_items(decoder: ModuleType) -> None:
    stream = stream_of(decoder, numbered(4), numbered(4, 4), value=int)
    items: list[Any] = []
    assert stream.take(items, 10) == 0  # no record is available yet
    items.append(await anext(stream))
    assert stream.take(items, 2) == 2
    assert stream.take(items, 10) == 1
    assert stream.take(items, 10) == 0
    items.append(await anext(stream))
    assert stream.take(items, 10) == 3
    assert [item.value for item in items] == list(range(8))
    assert stream.last_offset == 7


async def test_take_ends_before_an_error(decoder: ModuleType) -> None:
    failing = Failing(b"3", ValueError("no"))
    stream = stream_of(decoder, value=failing)
    items: list[Any] = [await anext(stream)]
    assert stream.take(items, 10) == 2
    assert stream.current is not None
    assert stream.current.next_offset == 3
    assert stream.take(items, 10) == 0
    with pytest.raises(ValueError, match="no"):
        await anext(stream)
    assert stream.take(items, 10) == 2
    assert [item.value for item in items] == [0, 1, 2, 4, 5]
    assert failing.calls.count(b"3") == 1


async def test_take_ends_before_an_awaitable(decoder: ModuleType) -> None:
    calls: list[bytes] = []

    async def later() -> int:
        await asyncio.sleep(0)
        return 2

    def read(data: bytes) -> object:
        calls.append(data)
        return later() if data == b"2" else int(data)

    stream = stream_of(decoder, value=read)
    items: list[Any] = [await anext(stream)]
    assert stream.take(items, 10) == 1
    items.append(await anext(stream))
    assert stream.take(items, 10) == 3
    assert [item.value for item in items] == list(range(COUNT))
    assert calls.count(b"2") == 1


async def test_an_unawaited_coroutine_is_closed(decoder: ModuleType) -> None:
    async def later(data: bytes) -> int:
        return int(data)

    stream = stream_of(decoder, value=later)
    stream.builder, builder = None, stream.builder
    await anext(stream)
    stream.builder = builder
    assert stream.take([], 10) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.builder = None
        del stream, builder
        gc.collect()


async def test_take_respects_the_deadline_and_the_limit(decoder: ModuleType) -> None:
    stream = stream_of(decoder, value=int)
    items: list[Any] = [await anext(stream)]
    stream.deadline = 0.0
    assert stream.take(items, 10) == 0
    stream.deadline = float("inf")
    stream.remaining = 2
    assert stream.take(items, 10) == 2
    assert stream.remaining == 0


async def test_take_leaves_corrupt_records_to_the_next_request(decoder: ModuleType) -> None:
    broken = bytearray(numbered(2, 6))
    broken[-1] ^= 1
    stream = stream_of(decoder, numbered() + bytes(broken), value=int)
    items: list[Any] = [await anext(stream)]
    assert stream.take(items, 100) == 5
    assert stream.take(items, 100) == 0
    with pytest.raises(CorruptRecords):
        await anext(stream)


# --- the message itself --------------------------------------------------------------------------


def message_of(decoder: ModuleType, value: object = 1, commit: Any = None) -> Any:
    record = decoder.Record("t", 0, 7, 8, 0, b"k", b"v", [("h", b"x")])
    return decoder.Message(record, "k", value, commit)


def test_messages_are_compared_by_their_contents(decoder: ModuleType) -> None:
    assert message_of(decoder) == message_of(decoder)
    assert message_of(decoder) != message_of(decoder, 2)
    assert message_of(decoder) != "message"
    assert len({message_of(decoder), message_of(decoder)}) == 1


def test_a_message_is_immutable(decoder: ModuleType) -> None:
    message = message_of(decoder)
    with pytest.raises(AttributeError):
        message.value = 2
    with pytest.raises(AttributeError):
        del message.value
    assert message.value == 1


def test_a_message_is_shown_on_one_line(decoder: ModuleType) -> None:
    text = repr(message_of(decoder, "x" * 1000))
    assert text.startswith("Message(topic='t', partition=0, offset=7, timestamp=8, key='k', value=")
    assert len(text) < 400


def test_a_message_can_be_pickled_and_matched(decoder: ModuleType) -> None:
    message = message_of(decoder)
    copy = pickle.loads(pickle.dumps(message))  # noqa: TID251 - made above
    assert (copy.offset, copy.key, copy.value, copy.headers) == (7, "k", 1, (("h", b"x"),))
    assert type(copy) is decoding.Message
    match message:
        case decoder.Message("t", 0, offset, _, "k", value):
            assert (offset, value) == (7, 1)
        case _:
            pytest.fail("no match")


def test_message_is_generic(decoder: ModuleType) -> None:
    assert get_origin(decoder.Message[str, int]) is decoder.Message


async def test_a_message_commits_itself(decoder: ModuleType) -> None:
    committed: list[int] = []

    async def commit(message: Any) -> None:
        committed.append(message.offset)

    await message_of(decoder, commit=commit).commit()
    assert committed == [7]
    with pytest.raises(ConfigError, match="commit_policy"):
        await message_of(decoder).commit()


def test_a_message_needs_a_record(decoder: ModuleType) -> None:
    with pytest.raises(TypeError):
        decoder.Message("record")


def test_messages_in_cycles_are_collected(decoder: ModuleType) -> None:
    class Value:
        message: object = None

    value = Value()
    value.message = message_of(decoder, value)
    gone = weakref.ref(value)
    del value
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("make", [lambda v: [v], lambda v: {"a": v}, lambda v: (v,)])
def test_messages_with_containers_in_cycles_are_collected(
    decoder: ModuleType, make: Callable[[object], object]
) -> None:
    class Value:
        message: object = None

    value = Value()
    value.message = message_of(decoder, make(value))
    gone = weakref.ref(value)
    del value
    gc.collect()
    assert gone() is None


def test_messages_of_subclasses_in_cycles_are_collected(decoder: ModuleType) -> None:
    class Mine(decoder.Message):  # type: ignore[name-defined]
        me: object = None
        __setattr__ = object.__setattr__

    [record] = decoder.Records(batch(rows(1)), topic="t", partition=3)
    mine = Mine(record, b"key", b"value")
    mine.me = mine
    gone = weakref.ref(mine)
    del mine
    gc.collect()
    assert gone() is None


def test_the_garbage_collector_visits_no_message_of_bytes() -> None:
    if decoding.name != "compiled":
        pytest.skip("the pure decoder has ordinary objects")
    [record] = decoding.Records(batch(rows(1)), topic="t", partition=3)
    plain: list[object] = [b"bytes", "text", 7, None]
    assert not any(gc.is_tracked(decoding.Message(record, b"key", value)) for value in plain)
    assert gc.is_tracked(decoding.Message(record, b"key", [b"bytes"]))
    assert gc.is_tracked(decoding.Message(record, {"key": 1}, b"value"))


async def test_the_garbage_collector_skips_subclasses_without_attributes() -> None:
    if decoding.name != "compiled":
        pytest.skip("the pure decoder has ordinary objects")

    class Plain(decoding.Message[Any, Any]):
        __slots__ = ()

    class WithAttributes(decoding.Message[Any, Any]):
        pass

    for message_type, tracked in ((Plain, False), (WithAttributes, True)):
        stream = stream_of(decoding, message_type=message_type)
        messages: list[Any] = [message async for message in stream]
        assert {type(message) for message in messages} == {message_type}
        assert {gc.is_tracked(message) for message in messages} == {tracked}


async def test_the_record_of_a_message_is_complete(decoder: ModuleType) -> None:
    row = Row(7, b"value", b"key", headers=(("h", b"1"), ("n", None)), timestamp=5)
    data = batch([row])
    message = await anext(stream_of(decoder, data, key=bytes.decode, value=len))
    [record] = decoder.Records(data, topic="t", partition=3)
    assert message.record == record
    assert message.record is message.record
    assert (message.key, message.value) == ("key", 5)
    assert (message.headers, message.timestamp) == (record.headers, record.timestamp)


async def test_the_record_of_a_message_outlives_the_message(decoder: ModuleType) -> None:
    """Parts of a message are reused only after its record is released."""
    data = batch(rows(300))
    stream = stream_of(decoder, data, value=bytes)
    retained = [message.record async for message in stream]
    again = [message async for message in stream_of(decoder, data, value=bytes)]
    assert retained == list(decoder.Records(data, topic="t", partition=3))
    assert [message.record for message in again] == retained


async def test_the_memory_of_released_messages_is_limited() -> None:
    """Later messages reuse the memory of released ones, within a limit."""
    if decoding.name != "compiled":
        pytest.skip("the pure decoder uses no message again")

    data = batch([Row(offset, b"v" * 400) for offset in range(20_000)])
    tracemalloc.start()
    try:
        stream = stream_of(decoding, data, value=bytes)
        messages = [message async for message in stream]
        del messages, stream
        retained_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert retained_bytes < 4 * 2**20


async def test_retained_messages_keep_their_values(decoder: ModuleType) -> None:
    """The memory of messages is reused, and never too early."""
    stream = stream_of(decoder, batch(rows(2000)), value=bytes)
    retained = [message async for message in stream if message.offset % 3 == 0]
    del stream
    assert [message.offset for message in retained] == list(range(0, 2000, 3))
    assert all(message.value == (b"%d " % message.offset * 100)[:100] for message in retained)
