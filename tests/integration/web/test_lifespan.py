"""Apps and consumers in a lifespan, on a real broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI

from asyncconsumer import ConsumerApp
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import Kafka
from asyncconsumer.web.pages import page
from tests.support.helpers import until
from tests.support.real_consumer import QUICK, make_consumer, send


async def test_a_failed_handler_is_reported_by_live(
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


async def test_a_consumer_reads_and_reports_health_in_a_lifespan(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, [7])
    consumer = make_consumer(kafka, topic, group_id=kafka.group())
    async with consumer.lifespan():
        reading = await consumer.current()
        assert (await anext(aiter(reading))).value == b"7"
        await until(lambda: page("GET", "/ready", consumer.status_by_worker).status == 200)
        assert b'"total": 0' in page("GET", "/lag", consumer.status_by_worker).body
    assert page("GET", "/live", consumer.status_by_worker).status == 503


async def test_a_web_app_starts_before_kafka_and_connects_later() -> None:
    billed: list[bytes] = []
    resources: list[str] = []

    @asynccontextmanager
    async def pool(app: ConsumerApp) -> AsyncIterator[None]:
        resources.append("opened")
        try:
            yield
        finally:
            resources.append("closed")

    async with Kafka() as kafka:
        for topic in ("orders", "billed", "dead"):
            await kafka.admin.create_topic(topic)
        await send(kafka, "orders", [7])
        await kafka.brokers[1].stop()
        servers = kafka.bootstrap_servers
        app = ConsumerApp(bootstrap_servers=servers, group_id="g", lifespan=pool, **QUICK)

        @app.handler("orders", publish="billed", dead_letter_topic="dead")
        async def bill(order: bytes) -> bytes:
            billed.append(order)
            return order

        def ready() -> int:
            return page("GET", "/ready", app.status_by_worker).status

        api = FastAPI(lifespan=app.lifespan)
        async with asyncio.timeout(60), api.router.lifespan_context(api):
            assert page("GET", "/live", app.status_by_worker).status == 200
            assert ready() == page("GET", "/started", app.status_by_worker).status == 503
            status = app.status_by_worker()[""]
            assert status.state == "starting"
            assert f"no broker answered: {servers}" in (status.reason or "")
            await kafka.brokers[1].start()
            await until(lambda: billed == [b"7"] and ready() == 200)
            assert page("GET", "/started", app.status_by_worker).status == 200
    assert resources == ["opened", "closed"] * (len(resources) // 2)
