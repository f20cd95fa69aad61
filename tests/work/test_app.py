"""An app as its users see it, against a real broker."""

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from asyncconsumer import (
    Batch,
    ClosedError,
    ConfigError,
    ConsumerApp,
    Key,
    Record,
    Retry,
    TopicPartition,
    Value,
)
from asyncconsumer.errors import HandlerFailed, NoBrokerAnswered
from asyncconsumer.records.record import Headers
from asyncconsumer.serdes import make_deserializer
from asyncconsumer.testing.handles import KafkaHandle
from tests.consumer.real import consumer
from tests.helpers import until
from tests.work.real import app, offsets, read, send

# --- what is called, and what is committed -------------------------------------------------------


async def test_every_record_is_handled_once_and_committed(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(300), keys=20)
    seen: list[int] = []
    one = app(kafka, group_id=group)

    @one.handler(topic, concurrency=10)
    async def handle(value: bytes) -> None:
        await asyncio.sleep(0)
        seen.append(int(value))

    async with one:
        assert len(await one.consumer.wait_assigned()) == 3
        await until(lambda: len(seen) >= 300)
        assert one.health()
    assert sorted(seen) == list(range(300))
    assert sum((await offsets(kafka, group)).values()) == 300
    assert one.health().state == "closed"
    async with consumer(kafka, topic, group_id=group) as after:  # any other consumer goes on there
        assert await after.wait_assigned()
        assert sum([await after.position(one) for one in after.assignment]) == 300


async def test_a_restart_does_not_repeat_what_is_finished_beyond_a_gap(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100), keys=100)
    begun: list[int] = []
    stuck = {3, 50}

    def make(**options: Any) -> ConsumerApp:
        made = app(kafka, group_id=group, shutdown_grace_ms=100, **options)

        @made.handler(topic, concurrency=50)
        async def handle(value: bytes) -> None:
            begun.append(int(value))
            if int(value) in stuck:
                await asyncio.Event().wait()

        return made

    async with make():
        await until(lambda: len(begun) == 100)
    kept = (await offsets(kafka, group))[TopicPartition(topic, 0)]
    assert kept == 3
    begun.clear()
    async with make():
        await until(lambda: set(begun) == stuck)
        await send(kafka, topic, [100], keys=1)
        await until(lambda: 100 in begun)
    stuck.clear()
    async with make():
        await until(lambda: len(begun) == 5)
    assert sorted(begun) == [3, 3, 50, 50, 100]
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 101


async def test_the_commit_says_what_is_finished_while_others_are_still_at_work(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10), keys=10)
    go = asyncio.Event()
    seen: list[int] = []
    one = app(kafka, group_id=group)

    @one.handler(topic)
    async def handle(value: bytes) -> None:
        if int(value) == 5:
            await go.wait()
        seen.append(int(value))

    async with one:
        await until(lambda: len(seen) == 9)
        at = TopicPartition(topic, 0)
        assert await one.consumer.commit() == {at: 5}
        assert (await offsets(kafka, group))[at].metadata.startswith("asyncconsumer:1:")
        go.set()
        await until(lambda: len(seen) == 10)
    kept = (await offsets(kafka, group))[at]
    assert (kept, kept.metadata) == (10, "")


async def test_topics_and_patterns_each_have_their_handler(kafka: KafkaHandle) -> None:
    first, second = await kafka.topic(), await kafka.topic()
    await send(kafka, first, [1])
    await send(kafka, second, [2])
    seen: Counter[str] = Counter()
    one = app(kafka, group_id=kafka.group())

    @one.handler(first)
    async def named(value: bytes) -> None:
        seen["named"] += int(value)

    @one.handler(pattern=f"{first[:-1]}.*")
    async def matching(value: bytes) -> None:
        seen["matching"] += int(value)

    async with one:
        await until(lambda: seen == {"named": 1, "matching": 2})


# --- arguments -----------------------------------------------------------------------------------


async def test_parameters_say_what_they_are_given(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, [b'{"id": 7}'], keys=1)
    seen: list[object] = []
    one = app(kafka, group_id=kafka.group())

    @one.handler(topic)
    async def handle(
        order: dict[str, int],
        key: str,
        raw: Annotated[bytes, Key],
        headers: Headers,
        record: Record,
        unasked: int = 5,
    ) -> None:
        seen.extend((order, key, raw, headers, record.offset, unasked))

    async with one:
        await until(lambda: bool(seen))
    assert seen == [{"id": 7}, "0", b"0", (), 0, 5]


class Order(BaseModel):
    id: int


async def test_values_become_what_is_annotated_also_by_asking_first(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, [b'{"id": 7}', b'{"id": "x"}', b'{"id": 8}'], keys=1)
    seen: list[object] = []

    async def asks(data: bytes) -> int:
        await asyncio.sleep(0)
        return len(data)

    class Handler:
        async def __call__(
            self,
            order: Annotated[Order, Value],
            length: Annotated[int, make_deserializer(asks)],
            key: bytes,
        ) -> None:
            seen.append((order.id, length, key))

    one = app(kafka, group_id=group)
    one.handler(topic, on_error="skip")(Handler())
    async with one:
        await until(lambda: len(seen) == 2)
    assert seen == [(7, 9, b"0"), (8, 9, b"0")]
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 3


async def test_batches_are_lists(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(250), keys=10)
    seen: list[list[str]] = []
    one = app(kafka, group_id=group)

    @one.handler(topic, ordering="partition", batch=Batch(max_records=100, max_wait_ms=20))
    async def handle(values: list[str], records: list[Record]) -> None:
        assert [record.value for record in records] == [value.encode() for value in values]
        seen.append(values)

    async with one:
        await until(lambda: sum(map(len, seen)) == 250)
    assert [int(value) for batch in seen for value in batch] == list(range(250))
    assert max(map(len, seen)) <= 100
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 250


# --- threads -------------------------------------------------------------------------------------


async def test_plain_functions_run_in_threads_side_by_side(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(40), keys=40)
    together = threading.Barrier(4)
    names: Counter[str] = Counter()
    one = app(kafka, group_id=group)

    @one.handler(topic, concurrency=4)
    def handle(value: bytes) -> None:
        together.wait(30)
        names[threading.current_thread().name] += 1

    async with one:
        await until(lambda: names.total() == 40)
    assert len(names) >= 4  # a spare one may be quicker than one that has just ended
    assert threading.current_thread().name not in names
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 40


async def test_a_thread_that_takes_too_long_is_given_up(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic, dead, group = await kafka.topic(), await kafka.topic(), kafka.group()
    await send(kafka, topic, [b"slow", b"quick"], keys=2)
    go = threading.Event()
    seen: list[bytes] = []
    one = app(kafka, group_id=group)

    @one.handler(topic, concurrency=2, handler_timeout_ms=200, dead_letter_topic=dead)
    def handle(value: bytes) -> None:
        if value == b"slow":
            go.wait(30)
        seen.append(value)

    async with one:
        (letter,) = await read(kafka, dead, 1)
        assert letter.value == b"slow"
        assert dict(letter.headers)["dlt.error.type"].endswith(b"HandlerTimedOut")
        go.set()
        await until(lambda: len(seen) == 2)
    assert "its thread goes on" in caplog.text
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 2


# --- failing -------------------------------------------------------------------------------------


async def test_dead_letters_tell_what_happened(kafka: KafkaHandle) -> None:
    topic, dead, group = await kafka.topic(), await kafka.topic(), kafka.group()
    await send(kafka, topic, [b"good", b"bad", b"good"], keys=1)
    one = app(kafka, group_id=group)
    seen: list[bytes] = []

    @one.handler(topic, retry=Retry(3, backoff_ms=5), dead_letter_topic=dead)
    async def handle(value: bytes) -> None:
        seen.append(value)
        if value == b"bad":
            raise KeyError("no such order")

    async with one:
        (letter,) = await read(kafka, dead, 1)
        await until(lambda: len(seen) == 5)
    assert seen == [b"good", b"bad", b"bad", b"bad", b"good"]
    assert (letter.key, letter.value) == (b"0", b"bad")
    told = {name: text.decode() for name, text in letter.headers}
    assert int(told.pop("dlt.timestamp")) > 0
    assert told == {
        "dlt.topic": topic,
        "dlt.partition": "0",
        "dlt.offset": "1",
        "dlt.error.type": "builtins.KeyError",
        "dlt.error.message": "'no such order'",
        "dlt.attempts": "3",
        "dlt.group": group,
        "dlt.handler": f"{test_dead_letters_tell_what_happened.__name__}.<locals>.handle",
    }
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 3


async def test_a_handler_that_fails_ends_the_block_and_is_raised(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10), keys=10)
    seen: list[int] = []
    one = app(kafka, group_id=group)

    @one.handler(topic)
    async def handle(value: bytes) -> None:
        await asyncio.sleep(0)
        if int(value) == 4:
            raise ValueError("four")
        seen.append(int(value))

    with pytest.raises(HandlerFailed, match=r"\[0\]@4: ValueError.*on_error='skip'") as caught:
        async with one:
            await asyncio.Event().wait()
    assert isinstance(caught.value.__cause__, ValueError)
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 4
    with pytest.raises(HandlerFailed):
        await one.failed()
    assert "ValueError" in (one.health().reason or "")


async def test_the_error_of_the_block_is_raised_as_it_is(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    one = app(kafka, group_id=kafka.group())

    @one.handler(topic)
    async def handle(value: bytes) -> None: ...

    with pytest.raises(ZeroDivisionError):
        async with one:
            _ = 1 // 0
    with pytest.raises(ClosedError):
        await one.failed()
    with pytest.raises(ClosedError):
        _ = one.consumer


async def test_nobody_there_is_told_at_once() -> None:
    one = ConsumerApp(bootstrap_servers="127.0.0.1:1", group_id="g", commit_timeout_ms=500)

    @one.handler("t", dead_letter_topic="d")
    def handle(value: bytes) -> None: ...

    with pytest.raises(NoBrokerAnswered):
        async with one:
            pass


# --- holding, losing, leaving --------------------------------------------------------------------


async def test_a_paused_partition_begins_nothing(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=2)
    seen: list[int] = []
    one = app(kafka, group_id=kafka.group())

    @one.handler(topic)
    async def handle(record: Record) -> None:
        seen.append(record.partition)

    async with one:
        await one.consumer.wait_assigned()
        one.consumer.pause(TopicPartition(topic, 0))
        for number in (0, 1):
            await send(kafka, topic, range(50), partition=number)
        await until(lambda: seen.count(1) == 50)
        assert 0 not in seen
        one.consumer.resume(TopicPartition(topic, 0))
        await until(lambda: seen.count(0) == 50)


async def test_seeking_forgets_what_was_finished(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(20))
    seen: list[int] = []
    one = app(kafka, group_id=group)

    @one.handler(topic)
    async def handle(value: bytes) -> None:
        seen.append(int(value))

    async with one:
        await until(lambda: len(seen) == 20)
        one.consumer.seek(TopicPartition(topic, 0), 15)
        await until(lambda: len(seen) == 25)
    assert sorted(seen[20:]) == list(range(15, 20))
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 20


async def test_a_handler_may_seek_in_its_own_partition(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))
    seen: list[int] = []
    one = app(kafka, group_id=group)

    @one.handler(topic, ordering="partition", concurrency=1)
    async def handle(value: bytes) -> None:
        seen.append(int(value))
        if len(seen) == 8:
            one.consumer.seek(TopicPartition(topic, 0), 2)  # and nothing is awaited after it

    async with one:
        await until(lambda: len(seen) == 16)
        assert one.health().handlers[f"{handle.__qualname__}"].failed == 0
    assert seen == [*range(8), *range(2, 10)]
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 10


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_what_runs_is_finished_before_its_partition_goes(
    kafka: KafkaHandle, protocol: str
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(40), keys=40)
    go = asyncio.Event()
    begun: list[tuple[str, int]] = []

    def make(name: str) -> ConsumerApp:
        made = app(kafka, group_id=group, group_protocol=protocol)

        @made.handler(topic, concurrency=5)
        async def handle(value: bytes) -> None:
            begun.append((name, int(value)))
            await go.wait()

        return made

    async with make("first") as first:
        await until(lambda: len(begun) == 5)
        async with make("second") as second:
            hold = asyncio.get_running_loop().call_later(1, go.set)  # while it is being revoked
            await until(lambda: len(begun) >= 40)
            hold.cancel()
            await until(lambda: len(first.consumer.assignment) == 1)
            await until(lambda: len(second.consumer.assignment) == 1)
    assert Counter(value for _, value in begun) == Counter(range(40))  # nothing twice
    assert {name for name, _ in begun} == {"first", "second"}
    assert sum((await offsets(kafka, group)).values()) == 40


async def test_a_signal_drains_commits_and_leaves(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10), keys=10)
    begun: list[int] = []
    finished: list[int] = []
    one = app(kafka, group_id=group)

    @one.handler(topic, concurrency=3)
    async def handle(value: bytes) -> None:
        begun.append(int(value))
        if len(begun) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.2)
        finished.append(int(value))

    before = signal.getsignal(signal.SIGTERM)
    assert await one.run()
    assert signal.getsignal(signal.SIGTERM) is before
    assert begun == finished == [0, 1, 2]
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 3


async def test_a_second_signal_cuts_short(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(3), keys=3)
    one = app(kafka, group_id=group, shutdown_grace_ms=60_000)

    @one.handler(topic)
    async def handle(value: bytes) -> None:
        if value == b"0":
            return
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    drained = await one.run()
    assert drained.cut_short == {TopicPartition(topic, 0): [1, 2]}
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 1


async def test_draining_commits_while_the_block_goes_on(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10), keys=10)
    begun: list[int] = []
    one = app(kafka, group_id=group, auto_commit_interval_ms=3_600_000)

    @one.handler(topic, concurrency=4)
    async def handle(value: bytes) -> None:
        begun.append(int(value))
        await asyncio.sleep(0.1)

    async with one:
        await until(lambda: len(begun) == 4)
        assert await one.drain()
        assert one.health().state == "draining"
        assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 4
    assert len(begun) == 4


# --- declaring -----------------------------------------------------------------------------------


def declaring(*topics: str, **handling: Any) -> ConsumerApp:
    one = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    @one.handler(*topics, **handling)
    async def handle(value: bytes) -> None: ...

    return one


@pytest.mark.fast
@pytest.mark.parametrize(
    ("topics", "handling", "told"),
    [
        ([], {}, "topics, or a pattern"),
        (["t"], {"pattern": "x"}, "not both"),
        ([], {"pattern": "("}, "regular expression"),
        (["t"], {"ordering": "keys"}, "did you mean key"),
        (["t"], {"concurrency": 0}, "concurrency"),
        (["t"], {"retry": 3}, "Retry"),
        (["t"], {"dead_letter_topic": "t"}, "its own dead_letter_topic"),
        (["t"], {"on_error": "ignore"}, "on_error"),
        (["t"], {"batch": Batch()}, r"handle, parameter 'value'.*list"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(
    topics: list[str], handling: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        declaring(*topics, **handling)


@pytest.mark.fast
def test_a_parameter_that_nobody_understands_is_named() -> None:
    one = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    with pytest.raises(ConfigError, match=r"wrong, parameter 'order'"):

        @one.handler("t")
        async def wrong(order: int) -> None: ...


@pytest.mark.fast
def test_a_topic_has_one_handler() -> None:
    one = declaring("a", "b")
    with pytest.raises(ConfigError, match="'b' has two handlers"):

        @one.handler("b")
        async def other(value: bytes) -> None: ...


@pytest.mark.fast
def test_options_of_the_consumer_are_checked_at_once() -> None:
    with pytest.raises(ConfigError, match="did you mean group_id"):
        ConsumerApp(bootstrap_servers="k:1", group_ids="g")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "given", "instead"),
    [
        ("commit_policy", "manual", "its handlers are done with"),
        ("commit_policy", "at_most_once", "its handlers are done with"),
        ("enable_auto_commit", False, "its handlers are done with"),
        ("on_poison", "skip", "on_error='skip'"),
        ("dead_letter_topic", "dead", "for each handler"),
        ("max_records", 2, r"drain\(\)"),
        ("idle_timeout_ms", 500, r"drain\(\)"),
        ("consumer_timeout_ms", 500, r"drain\(\)"),
        ("stop_at", "end", r"drain\(\)"),
        ("progress", True, r"health\(\)"),
        ("value_deserializer", "json", "annotate"),
        ("pattern", "t.*", "@app.handler"),
        ("partitions", [TopicPartition("t", 0)], "a group"),
    ],
)
def test_what_is_for_loops_is_refused_and_it_is_told_what_to_do_instead(
    name: str, given: Any, instead: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}=.* is not for an app: .*{instead}"):
        ConsumerApp(bootstrap_servers="k:1", group_id="g", **{name: given})


@pytest.mark.fast
def test_what_would_never_be_called_is_refused() -> None:
    one = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    async def many(value: bytes) -> AsyncIterator[int]:
        yield 1

    def some(value: bytes) -> Iterator[int]:
        yield 1

    with pytest.raises(ConfigError, match="many has a `yield`"):
        one.handler("t")(many)
    with pytest.raises(ConfigError, match="some has a `yield`"):
        one.handler("t")(some)
    with pytest.raises(ConfigError, match="name the topics of a handler"):
        one.handler(some)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="group_id"):
        ConsumerApp(bootstrap_servers="k:1")
    with pytest.raises(ConfigError, match="on must be a tuple"):
        Retry(on=5)  # type: ignore[arg-type]


@pytest.mark.fast
def test_what_is_the_default_may_be_said() -> None:
    ConsumerApp(bootstrap_servers="k:1", group_id="g", commit_policy="auto", on_poison="raise")


async def test_an_app_without_handlers_does_not_open() -> None:
    with pytest.raises(ConfigError, match="no handler"):
        async with ConsumerApp(bootstrap_servers="k:1", group_id="g"):
            pass
