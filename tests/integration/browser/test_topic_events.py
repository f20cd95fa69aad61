"""A topic in browsers: order, resumption, slow clients, WebSockets, and the example page."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from asyncconsumer import Record
from asyncconsumer.browser import TopicEvents
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers.ports import Ports
from asyncconsumer.web.server import serving
from tests.support.chromium import chromium, find_browser
from tests.support.example_services import Program
from tests.support.helpers import until
from tests.support.real_consumer import send


def events_of(kafka: KafkaHandle, topic: str, **options: Any) -> TopicEvents:
    return TopicEvents(topic, bootstrap_servers=kafka.bootstrap_servers, **options)


async def lines(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    """Yield the fields of each event."""
    event: dict[str, str] = {}
    async for line in answer.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            event[name] = value
        elif event:
            yield event
            event = {}


async def take(
    port: int, count: int, last: str | None = None
) -> tuple[list[int], list[str], dict[str, str]]:
    """Return the values and ids of the next events, and the first event."""
    headers = {"Last-Event-ID": last} if last else {}
    values: list[int] = []
    ids: list[str] = []
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.get("/", headers=headers) as answer,
    ):
        stream = lines(answer)
        first = await anext(stream)
        while len(values) < count:
            event = await anext(stream)
            values.append(int(json.loads(event["data"])["value"]))
            ids.append(event["id"])
    return values, ids, first


async def test_a_client_continues_at_its_last_event(kafka: KafkaHandle) -> None:
    topic = await kafka.topic(partitions=2)
    await send(kafka, topic, range(20), partitions=2)
    async with serving(events_of(kafka, topic, start="earliest"), "127.0.0.1", 0) as port:
        values, ids, first = await take(port, 20)
        assert sorted(values) == list(range(20))
        assert (first["event"], first["id"]) == ("start", "0:0,1:0")
        for number in (0, 7, 18):  # a connection may break after any event
            rest, _, _ = await take(port, 19 - number, ids[number])
            assert sorted(values[: number + 1] + rest) == list(range(20))
        await send(kafka, topic, [20, 21], partitions=2)
        assert sorted((await take(port, 2, ids[-1]))[0]) == [20, 21]


async def test_a_new_client_starts_at_the_end(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, [1, 2])
    events = events_of(kafka, topic)
    async with serving(events, "127.0.0.1", 0) as port, asyncio.TaskGroup() as group:
        taking = group.create_task(take(port, 1))
        await until(lambda: events._clients == 1)
        while not taking.done():
            await send(kafka, topic, [3])
            await asyncio.sleep(0.05)
        values, _, first = await taking
        assert (values, first["id"]) == ([3], "0:2")
        await until(lambda: events._clients == 0)


async def test_a_position_outside_the_log_becomes_its_end(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, [1, 2])
    async with serving(events_of(kafka, topic), "127.0.0.1", 0) as port:
        assert (await take(port, 0, "0:900,7:5"))[2]["id"] == "0:2"


async def test_encode_can_change_and_leave_out_records(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(5))

    def odd(record: Record) -> dict[str, int] | None:
        number = int(record.value or b"")
        return {"value": -number} if number % 2 else None

    events = events_of(kafka, topic, start="earliest", encode=odd)
    async with serving(events, "127.0.0.1", 0) as port:
        assert (await take(port, 2))[0] == [-1, -3]


async def test_an_unknown_topic_is_reported(kafka: KafkaHandle) -> None:
    events = events_of(kafka, "no-such-topic", retry_timeout_ms=1)
    async with (
        serving(events, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.get("/") as answer,
    ):
        event = await anext(lines(answer))
        assert event["event"] == "problem"
        assert "no-such-topic" in event["data"]


async def test_reading_waits_for_a_slow_client_until_it_is_disconnected(
    kafka: KafkaHandle,
) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(100))
    encoded: list[int] = []

    def encode(record: Record) -> str:
        encoded.append(record.offset)
        return "x" * 1_000_000

    events = events_of(kafka, topic, start="earliest", encode=encode, slow_client_seconds=1.0)
    async with serving(events, "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1_000)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"event: start")
        assert events._clients == 1
        await until(lambda: events._clients == 0)  # it receives nothing more
        assert len(encoded) < 50  # what fits into the buffers of two sockets
        writer.transport.abort()


@pytest.mark.parametrize("last", [None, "0:2"])
async def test_a_web_socket_continues_at_its_last_event(
    kafka: KafkaHandle, last: str | None
) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, [0, 1, 2, 3])
    events = events_of(kafka, topic, start="earliest")
    url = "/" if last is None else f"/?last={last}"
    async with (
        serving(events, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.ws_connect(url) as socket,
    ):
        start = await socket.receive_json()
        assert start == {"id": last or "0:0", "record": None}
        message: dict[str, Any] = {}
        for number in range(2 if last else 0, 4):
            message = await socket.receive_json()
            assert message["record"]["value"] == str(number)
        assert message["id"] == "0:4"
        await socket.close()
        await until(lambda: events._clients == 0)


async def test_the_example_page_shows_records(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, ports = await kafka.topic(), Ports()
    port = ports.take()
    servers = {"ASYNCCONSUMER_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "TOPIC": topic}
    command = [sys.executable, "-m", "uvicorn", "examples.live_page:api", "--port", str(port)]
    try:
        async with aclosing(Program(tmp_path, **servers)) as program:
            program.start(*command)
            await program.wait_output("Uvicorn running on")
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                async with session.get("/") as answer:
                    assert "EventSource" in await answer.text()
                async with session.get("/events/") as answer:
                    stream = lines(answer)
                    assert (await anext(stream))["event"] == "start"
                    await send(kafka, topic, [5])
                    event = await anext(stream)
                    assert json.loads(event["data"])["value"] == "5"
            if (browser := find_browser()) is not None:
                async with chromium(browser) as tab:
                    await tab.open(f"http://127.0.0.1:{port}/")
                    await tab.wait_text("#state", "live")
                    await send(kafka, topic, [77])
                    await tab.wait_text("#orders", "77")
            assert await program.end() in (0, -15), program.observed
    finally:
        ports.close()
