"""Apps and consumers in a lifespan, on a real broker."""

import pytest
from fastapi import FastAPI

from asyncconsumer import ConsumerApp
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.web.pages import page
from tests.support.helpers import until
from tests.support.real_consumer import QUICK, make_consumer, send


async def test_a_handler_that_fails_is_reported_by_live(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await kafka.topic()
    app = ConsumerApp(bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group(), **QUICK)

    @app.handler(topic)
    async def work(value: bytes) -> None:
        raise ValueError("no such customer")

    async with app.lifespan(FastAPI()):
        await until(lambda: page("GET", "/ready", app.status_by_worker).status == 200)
        assert page("GET", "/started", app.status_by_worker).status == 200
        await send(kafka, topic, [1])
        await until(lambda: page("GET", "/live", app.status_by_worker).status == 503)
        body = page("GET", "/live", app.status_by_worker).body.decode()
        assert f"failed for {topic}[0]@0: ValueError" in body
        for path in ("/live", "/ready", "/status", "/metrics"):
            assert b"no such customer" not in page("GET", path, app.status_by_worker).body
        await until(lambda: "the web app continues without it" in caplog.text)
    assert "no such customer" in caplog.text


async def test_a_consumer_in_a_lifespan(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, [7])
    consumer = make_consumer(kafka, topic, group_id=kafka.group())
    async with consumer.lifespan():
        reading = await consumer.current()
        assert (await anext(aiter(reading))).value == b"7"
        await until(lambda: page("GET", "/ready", consumer.status_by_worker).status == 200)
        assert b'"total": 0' in page("GET", "/lag", consumer.status_by_worker).body
    assert page("GET", "/live", consumer.status_by_worker).status == 503
