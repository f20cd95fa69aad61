"""Handlers that publish the values that they return."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from asyncconsumer import (
    Batch,
    ConsumerApp,
    Outgoing,
    Producer,
    Publish,
    Record,
    Retry,
    TopicPartition,
)
from asyncconsumer.errors import HandlerFailed
from asyncconsumer.testing.handles import KafkaHandle


@dataclasses.dataclass
class Bill:
    id: int


async def read(servers: str, topic: str, count: int) -> list[Any]:
    async with (
        asyncio.timeout(60),
        AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as reader,
    ):
        return [await reader.getone() for _ in range(count)]


async def produce(
    kafka: KafkaHandle, topic: str, values: list[bytes], key: bytes | None = None
) -> None:
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for value in values:
            await producer.send(topic, value, key=key)


async def end_of(kafka: KafkaHandle, topic: str) -> int:
    async with AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as reader:
        ends: dict[Any, int] = await reader.end_offsets([TopicPartition(topic, 0)])
    return sum(ends.values())


def app_for(kafka: KafkaHandle) -> ConsumerApp:
    return ConsumerApp(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=kafka.group(),
        auto_offset_reset="earliest",
    )


async def bill(value: bytes) -> Bill:
    return Bill(int(value))


def bill_in_a_thread(value: bytes) -> Bill:
    return Bill(int(value))


async def two(value: bytes) -> list[Bill | None]:
    return [Bill(int(value)), None, Bill(int(value) + 100)]


async def generated(value: bytes) -> AsyncIterator[Bill]:
    yield Bill(int(value))
    yield Bill(int(value) + 100)


def generated_in_a_thread(value: bytes) -> Any:
    yield Bill(int(value))
    yield Bill(int(value) + 100)


async def even(value: bytes) -> Bill | None:
    return Bill(int(value)) if int(value) % 2 == 0 else None


BOTH = [*range(10), *range(100, 110)]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (bill, [*range(10)]),
        (bill_in_a_thread, [*range(10)]),
        (two, BOTH),
        (generated, BOTH),
        (generated_in_a_thread, BOTH),
        (even, [*range(0, 10, 2)]),
    ],
)
async def test_results_are_published_with_the_key_of_their_record(
    kafka: KafkaHandle, function: Callable[..., Any], expected: list[int]
) -> None:
    topic, billed = await kafka.topic(), await kafka.topic()
    await produce(kafka, topic, [b"%d" % n for n in range(10)], key=b"k")
    app = app_for(kafka)
    app.handler(topic, publish=billed)(function)
    async with app:
        records = await read(kafka.bootstrap_servers, billed, len(expected))
    assert sorted(json.loads(record.value)["id"] for record in records) == expected
    assert {record.key for record in records} == {b"k"}
    assert await end_of(kafka, billed) == len(expected)


async def test_results_can_set_topic_key_headers_and_serializer(kafka: KafkaHandle) -> None:
    topic, billed, other = await kafka.topic(), await kafka.topic(), await kafka.topic()
    await produce(kafka, topic, [b"1"], key=b"k")
    app = app_for(kafka)

    def text(value: object) -> bytes:
        return f"<{value}>".encode()

    @app.handler(topic, publish=Publish(billed, serializer=text, key=lambda value: f"key-{value}"))
    async def handle(value: str) -> list[Any]:
        return [value, Outgoing(other, value=2, key="o", headers=[("h", b"1")])]

    async with app:
        (record,) = await read(kafka.bootstrap_servers, billed, 1)
        assert (record.key, record.value) == (b"key-1", b"<1>")
        (record,) = await read(kafka.bootstrap_servers, other, 1)
        assert (record.key, record.value, record.headers) == (b"o", b"<2>", (("h", b"1"),))


async def test_a_batch_handler_publishes_several_results(kafka: KafkaHandle) -> None:
    topic, billed = await kafka.topic(), await kafka.topic()
    await produce(kafka, topic, [b"%d" % n for n in range(10)], key=b"k")
    app = app_for(kafka)

    @app.handler(topic, batch=Batch(4, max_wait_ms=10), publish=billed)
    async def handle(values: list[str]) -> list[str]:
        return [value.upper() for value in values]

    async with app:
        records = await read(kafka.bootstrap_servers, billed, 10)
    assert [record.value for record in records] == [b"%d" % n for n in range(10)]


async def test_a_record_is_committed_after_its_result_is_written(kafka: KafkaHandle) -> None:
    """Check a result that its topic does not accept. The record counts as failed."""
    topic, billed = await kafka.topic(), await kafka.topic(config={"max.message.bytes": "1000"})
    dead = await kafka.topic()
    await produce(kafka, topic, [b"x" * 2000, b"small"])
    app = app_for(kafka)
    calls = []

    @app.handler(topic, publish=billed, retry=Retry(2, backoff_ms=1), dead_letter_topic=dead)
    async def handle(value: bytes) -> bytes:
        calls.append(len(value))
        return value

    async with app:
        (record,) = await read(kafka.bootstrap_servers, dead, 1)
        (result,) = await read(kafka.bootstrap_servers, billed, 1)
        await app.drain()
        tp = TopicPartition(topic, 0)
        assert await app.consumer.committed([tp]) == {tp: 2}
    assert result.value == b"small"
    assert record.value == b"x" * 2000
    assert dict(record.headers)["dlt.error.type"].endswith(b"RecordTooLarge")
    assert sorted(calls) == [5, 2000, 2000]


async def test_a_failure_to_publish_stops_the_app_without_a_commit(kafka: KafkaHandle) -> None:
    topic, billed = await kafka.topic(), await kafka.topic(config={"max.message.bytes": "1000"})
    await produce(kafka, topic, [b"x" * 2000])
    app = app_for(kafka)

    @app.handler(topic, publish=billed)
    async def handle(value: bytes) -> bytes:
        return value

    with pytest.raises(HandlerFailed, match="larger than the topic accepts"):
        async with app:
            await app.failed()
    assert await end_of(kafka, billed) == 0
    again = app_for(kafka)
    again._options["group_id"] = app.group_id
    seen = asyncio.Event()

    @again.handler(topic)
    async def accept(value: bytes) -> None:
        seen.set()

    async with again, asyncio.timeout(60):
        await seen.wait()


async def test_a_result_without_a_topic_is_logged_once(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await kafka.topic()
    await produce(kafka, topic, [b"1", b"2"])
    app = app_for(kafka)
    done = []

    @app.handler(topic)
    async def handle(record: Record) -> int:
        done.append(record.offset)
        return 7

    async with app, asyncio.timeout(60):
        while len(done) < 2:
            await asyncio.sleep(0.01)
    logged = [record.getMessage() for record in caplog.records if "is dropped" in record.message]
    assert len(logged) == 1
    assert "handle returned int, which is dropped: set `publish`" in logged[0]
