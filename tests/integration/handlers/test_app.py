"""An app on a real broker."""

import asyncio
import os
import signal
import threading
from collections import Counter
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
from tests.support.helpers import until
from tests.support.real_apps import make_app, offsets, read, send
from tests.support.real_consumer import make_consumer

# --- calls and commits ---------------------------------------------------------------------------


async def test_every_record_is_handled_once_and_committed(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(300), keys=20)
    seen: list[int] = []
    app = make_app(kafka, group_id=group)

    @app.handler(topic, concurrency=10)
    async def handle(value: bytes) -> None:
        await asyncio.sleep(0)
        seen.append(int(value))

    async with app:
        assert len(await app.consumer.wait_assigned()) == 3
        await until(lambda: len(seen) >= 300)
        assert app.health()
    assert sorted(seen) == list(range(300))
    assert sum((await offsets(kafka, group)).values()) == 300
    assert app.health().state == "closed"
    async with make_consumer(
        kafka, topic, group_id=group
    ) as after:  # another consumer continues there
        assert await after.wait_assigned()
        assert sum([await after.position(tp) for tp in after.assignment]) == 300


async def test_urgent_records_overtake_a_backlog_of_another_topic(kafka: KafkaHandle) -> None:
    bulk, urgent, group = await kafka.topic(), await kafka.topic(), kafka.group()
    await send(kafka, bulk, range(500), keys=500)
    started: list[str] = []
    free = asyncio.Event()
    app = make_app(kafka, group_id=group)

    @app.handler(bulk, urgent, priorities={urgent: 10}, concurrency=2)
    async def handle(record: Record) -> None:
        started.append(record.topic)
        await free.wait()

    async with app:
        await until(lambda: len(started) == 2)
        await send(kafka, urgent, range(50), keys=50)
        await until(lambda: [each.in_flight for each in app.health().handlers.values()] == [550])
        free.set()
        await until(lambda: len(started) == 550)
    assert started[:80].count(urgent) == 50  # every tenth call is for the other topic
    committed = {tp.topic: int(offset) for tp, offset in (await offsets(kafka, group)).items()}
    assert committed == {bulk: 500, urgent: 50}


async def test_a_restart_does_not_repeat_records_finished_after_a_gap(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(100), keys=100)
    begun: list[int] = []
    stuck = {3, 50}

    def make(**options: Any) -> ConsumerApp:
        made = make_app(kafka, group_id=group, shutdown_grace_ms=100, **options)

        @made.handler(topic, concurrency=50)
        async def handle(value: bytes) -> None:
            begun.append(int(value))
            if int(value) in stuck:
                await asyncio.Event().wait()

        return made

    async with make():
        await until(lambda: len(begun) == 100)
    offset = (await offsets(kafka, group))[TopicPartition(topic, 0)]
    assert offset == 3
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


async def test_commit_metadata_has_records_finished_after_a_gap(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10), keys=10)
    go = asyncio.Event()
    seen: list[int] = []
    app = make_app(kafka, group_id=group)

    @app.handler(topic)
    async def handle(value: bytes) -> None:
        if int(value) == 5:
            await go.wait()
        seen.append(int(value))

    async with app:
        await until(lambda: len(seen) == 9)
        tp = TopicPartition(topic, 0)
        assert await app.consumer.commit() == {tp: 5}
        assert (await offsets(kafka, group))[tp].metadata.startswith("asyncconsumer:1:")
        go.set()
        await until(lambda: len(seen) == 10)
    offset = (await offsets(kafka, group))[tp]
    assert (offset, offset.metadata) == (10, "")


async def test_topics_and_patterns_have_handlers_of_their_own(kafka: KafkaHandle) -> None:
    first, second = await kafka.topic(), await kafka.topic()
    await send(kafka, first, [1])
    await send(kafka, second, [2])
    seen: Counter[str] = Counter()
    app = make_app(kafka, group_id=kafka.group())

    @app.handler(first)
    async def named(value: bytes) -> None:
        seen["named"] += int(value)

    @app.handler(pattern=f"{first[:-1]}.*")
    async def matching(value: bytes) -> None:
        seen["matching"] += int(value)

    async with app:
        await until(lambda: seen == {"named": 1, "matching": 2})


# --- arguments -----------------------------------------------------------------------------------


async def test_annotations_of_parameters_select_their_values(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, [b'{"id": 7}'], keys=1)
    seen: list[object] = []
    app = make_app(kafka, group_id=kafka.group())

    @app.handler(topic)
    async def handle(
        order: dict[str, int],
        key: str,
        raw: Annotated[bytes, Key],
        headers: Headers,
        record: Record,
        unasked: int = 5,
    ) -> None:
        seen.extend((order, key, raw, headers, record.offset, unasked))

    async with app:
        await until(lambda: bool(seen))
    assert seen == [{"id": 7}, "0", b"0", (), 0, 5]


class Order(BaseModel):
    id: int


async def test_values_are_deserialized_to_annotations_also_asynchronously(
    kafka: KafkaHandle,
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, [b'{"id": 7}', b'{"id": "x"}', b'{"id": 8}'], keys=1)
    seen: list[object] = []

    async def count(data: bytes) -> int:
        await asyncio.sleep(0)
        return len(data)

    class Handler:
        async def __call__(
            self,
            order: Annotated[Order, Value],
            length: Annotated[int, make_deserializer(count)],
            key: bytes,
        ) -> None:
            seen.append((order.id, length, key))

    app = make_app(kafka, group_id=group)
    app.handler(topic, on_error="skip")(Handler())
    async with app:
        await until(lambda: len(seen) == 2)
    assert seen == [(7, 9, b"0"), (8, 9, b"0")]
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 3


async def test_a_batch_is_passed_as_lists_of_values_and_records(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(250), keys=10)
    seen: list[list[str]] = []
    app = make_app(kafka, group_id=group)

    @app.handler(topic, ordering="partition", batch=Batch(max_records=100, max_wait_ms=20))
    async def handle(values: list[str], records: list[Record]) -> None:
        assert [record.value for record in records] == [value.encode() for value in values]
        seen.append(values)

    async with app:
        await until(lambda: sum(map(len, seen)) == 250)
    assert [int(value) for batch in seen for value in batch] == list(range(250))
    assert max(map(len, seen)) <= 100
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 250


# --- threads -------------------------------------------------------------------------------------


async def test_plain_functions_run_concurrently_in_threads(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(40), keys=40)
    together = threading.Barrier(4)
    names: Counter[str] = Counter()
    app = make_app(kafka, group_id=group)

    @app.handler(topic, concurrency=4)
    def handle(value: bytes) -> None:
        together.wait(30)
        names[threading.current_thread().name] += 1

    async with app:
        await until(lambda: names.total() == 40)
    assert len(names) >= 4  # a call may start in a new thread
    assert threading.current_thread().name not in names
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 40


async def test_a_call_in_a_thread_that_times_out_becomes_a_dead_letter(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic, dead, group = await kafka.topic(), await kafka.topic(), kafka.group()
    await send(kafka, topic, [b"slow", b"quick"], keys=2)
    go = threading.Event()
    seen: list[bytes] = []
    app = make_app(kafka, group_id=group)

    @app.handler(topic, concurrency=2, handler_timeout_ms=200, dead_letter_topic=dead)
    def handle(value: bytes) -> None:
        if value == b"slow":
            go.wait(30)
        seen.append(value)

    async with app:
        (dead_letter,) = await read(kafka, dead, 1)
        assert dead_letter.value == b"slow"
        assert dict(dead_letter.headers)["dlt.error.type"].endswith(b"HandlerTimedOut")
        go.set()
        await until(lambda: len(seen) == 2)
    assert "its thread continues" in caplog.text
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 2


# --- failures ------------------------------------------------------------------------------------


async def test_headers_of_a_dead_letter_describe_the_failure(kafka: KafkaHandle) -> None:
    topic, dead, group = await kafka.topic(), await kafka.topic(), kafka.group()
    await send(kafka, topic, [b"good", b"bad", b"good"], keys=1)
    app = make_app(kafka, group_id=group)
    seen: list[bytes] = []

    @app.handler(topic, retry=Retry(3, backoff_ms=5), dead_letter_topic=dead)
    async def handle(value: bytes) -> None:
        seen.append(value)
        if value == b"bad":
            raise KeyError("no such order")

    async with app:
        (dead_letter,) = await read(kafka, dead, 1)
        await until(lambda: len(seen) == 5)
    assert seen == [b"good", b"bad", b"bad", b"bad", b"good"]
    assert (dead_letter.key, dead_letter.value) == (b"0", b"bad")
    reported = {name: text.decode() for name, text in dead_letter.headers}
    assert int(reported.pop("dlt.timestamp")) > 0
    assert 'raise KeyError("no such order")' in reported.pop("dlt.error.traceback")
    assert reported == {
        "dlt.topic": topic,
        "dlt.partition": "0",
        "dlt.offset": "1",
        "dlt.error.type": "builtins.KeyError",
        "dlt.error.message": "'no such order'",
        "dlt.attempts": "3",
        "dlt.group": group,
        "dlt.handler": handle.__qualname__,
    }
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 3


async def test_a_failing_handler_ends_the_block_with_handler_failed(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10), keys=10)
    seen: list[int] = []
    app = make_app(kafka, group_id=group)

    @app.handler(topic)
    async def handle(value: bytes) -> None:
        await asyncio.sleep(0)
        if int(value) == 4:
            raise ValueError("four")
        seen.append(int(value))

    with pytest.raises(HandlerFailed, match=r"\[0\]@4: ValueError.*on_error='skip'") as caught:
        async with app:
            await asyncio.Event().wait()
    assert isinstance(caught.value.__cause__, ValueError)
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 4
    with pytest.raises(HandlerFailed):
        await app.failed()
    assert "ValueError" in (app.health().reason or "")


async def test_an_exception_of_the_block_is_raised_unchanged(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    app = make_app(kafka, group_id=kafka.group())

    @app.handler(topic)
    async def handle(value: bytes) -> None: ...

    with pytest.raises(ZeroDivisionError):
        async with app:
            _ = 1 // 0
    with pytest.raises(ClosedError):
        await app.failed()
    with pytest.raises(ClosedError):
        _ = app.consumer


async def test_unreachable_bootstrap_servers_are_reported_by_the_block() -> None:
    app = ConsumerApp(bootstrap_servers="127.0.0.1:1", group_id="g", commit_timeout_ms=500)

    @app.handler("t", dead_letter_topic="d")
    def handle(value: bytes) -> None: ...

    with pytest.raises(NoBrokerAnswered):
        async with app:
            pass


# --- pauses, seeks, revocations and stops --------------------------------------------------------


async def test_no_handler_is_called_for_a_paused_partition(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=2)
    seen: list[int] = []
    app = make_app(kafka, group_id=kafka.group())

    @app.handler(topic)
    async def handle(record: Record) -> None:
        seen.append(record.partition)

    async with app:
        await app.consumer.wait_assigned()
        app.consumer.pause(TopicPartition(topic, 0))
        for number in (0, 1):
            await send(kafka, topic, range(50), partition=number)
        await until(lambda: seen.count(1) == 50)
        assert 0 not in seen
        app.consumer.resume(TopicPartition(topic, 0))
        await until(lambda: seen.count(0) == 50)


async def test_a_seek_back_repeats_finished_records(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(20))
    seen: list[int] = []
    app = make_app(kafka, group_id=group)

    @app.handler(topic)
    async def handle(value: bytes) -> None:
        seen.append(int(value))

    async with app:
        await until(lambda: len(seen) == 20)
        app.consumer.seek(TopicPartition(topic, 0), 15)
        await until(lambda: len(seen) == 25)
    assert sorted(seen[20:]) == list(range(15, 20))
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 20


async def test_a_handler_can_seek_its_own_partition(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10))
    seen: list[int] = []
    app = make_app(kafka, group_id=group)

    @app.handler(topic, ordering="partition", concurrency=1)
    async def handle(value: bytes) -> None:
        seen.append(int(value))
        if len(seen) == 8:
            app.consumer.seek(TopicPartition(topic, 0), 2)  # with no await after it

    async with app:
        await until(lambda: len(seen) == 16)
        assert app.health().handlers[f"{handle.__qualname__}"].failed == 0
    assert seen == [*range(8), *range(2, 10)]
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 10


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_revocation_waits_until_running_handlers_are_finished(
    kafka: KafkaHandle, protocol: str
) -> None:
    topic, group = await kafka.topic(partitions=2), kafka.group()
    await send(kafka, topic, range(40), keys=40)
    go = asyncio.Event()
    begun: list[tuple[str, int]] = []

    def make(name: str) -> ConsumerApp:
        made = make_app(kafka, group_id=group, group_protocol=protocol)

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
    assert Counter(value for _, value in begun) == Counter(range(40))  # none is repeated
    assert {name for name, _ in begun} == {"first", "second"}
    assert sum((await offsets(kafka, group)).values()) == 40


async def test_a_signal_drains_commits_and_leaves(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10), keys=10)
    begun: list[int] = []
    finished: list[int] = []
    app = make_app(kafka, group_id=group)

    @app.handler(topic, concurrency=3)
    async def handle(value: bytes) -> None:
        begun.append(int(value))
        if len(begun) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.2)
        finished.append(int(value))

    before = signal.getsignal(signal.SIGTERM)
    assert await app.run()
    assert signal.getsignal(signal.SIGTERM) is before
    assert begun == finished == [0, 1, 2]
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 3


async def test_a_second_signal_cancels_running_handlers(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(3), keys=3)
    app = make_app(kafka, group_id=group, shutdown_grace_ms=60_000)

    @app.handler(topic)
    async def handle(value: bytes) -> None:
        if value == b"0":
            return
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    drained = await app.run()
    assert drained.cut_short == {TopicPartition(topic, 0): [1, 2]}
    assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 1


async def test_drain_finishes_running_calls_and_commits(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(10), keys=10)
    begun: list[int] = []
    app = make_app(kafka, group_id=group, auto_commit_interval_ms=3_600_000)

    @app.handler(topic, concurrency=4)
    async def handle(value: bytes) -> None:
        begun.append(int(value))
        await asyncio.sleep(0.1)

    async with app:
        await until(lambda: len(begun) == 4)
        assert await app.drain()
        assert app.health().state == "draining"
        assert (await offsets(kafka, group))[TopicPartition(topic, 0)] == 4
    assert len(begun) == 4


async def test_an_app_without_handlers_is_refused() -> None:
    with pytest.raises(ConfigError, match="no handler"):
        async with ConsumerApp(bootstrap_servers="k:1", group_id="g"):
            pass
