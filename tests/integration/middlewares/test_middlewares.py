"""All built-in middlewares together, on a real broker."""

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from aiokafka import AIOKafkaProducer

from asyncconsumer import Header, Record, Retry
from asyncconsumer.middlewares import (
    CircuitBreaker,
    CloudEvents,
    Deduplicate,
    RateLimit,
    SqliteStore,
    StructuredLogging,
    Timeout,
    Tracing,
)
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until
from tests.support.real_apps import make_app


def event_id(record: Record) -> str:
    return next(text.decode() for name, text in record.headers if name == "ce_id" and text)


async def test_duplicates_are_handled_once_though_attempts_fail(
    kafka: KafkaHandle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "asyncconsumer.middlewares")
    topic, store = await kafka.topic(), SqliteStore(tmp_path / "seen.db")
    breaker = CircuitBreaker(2, reset_ms=100)
    sold: list[tuple[str, int]] = []
    failed = 0
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in (1, 2, 1, 3, 2):
            event = {"specversion": "1.0", "id": f"{number}", "source": "/s", "type": "sold"}
            value = json.dumps({**event, "data": {"id": number}}).encode()
            headers = [("content-type", b"application/cloudevents+json")]
            await producer.send_and_wait(topic, value, headers=headers)
    app = make_app(
        kafka,
        group_id=kafka.group(),
        middlewares=[
            StructuredLogging(),
            CloudEvents(),
            Deduplicate(event_id, window=timedelta(hours=1), store=store),
            breaker,
            RateLimit(1000, burst=10),
            Timeout(30_000),
            Tracing(),
        ],
    )

    @app.handler(topic, ordering="partition", retry=Retry(10, backoff_ms=10, max_backoff_ms=20))
    async def sell(order: dict[str, Any], kind: Annotated[str, Header("ce_type")]) -> None:
        nonlocal failed
        if failed < 3:
            failed += 1
            raise OSError("it is down")
        sold.append((kind, order["id"]))

    async with app:
        await until(_is_logged(caplog, 5))
    store.close()
    assert sold == [("sold", 1), ("sold", 2), ("sold", 3)]
    assert not breaker.is_open
    assert "opens after 2 failures" in caplog.text


def _is_logged(caplog: pytest.LogCaptureFixture, count: int) -> Callable[[], bool]:
    def is_logged() -> bool:
        outcomes = [getattr(each, "outcome", "") for each in caplog.records]
        return outcomes.count("processed") == count

    return is_logged
