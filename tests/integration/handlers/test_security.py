"""Dead letters, retry topics and replay on brokers that require a login: no log has a secret."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from asyncconsumer import ConsumerApp, Record, Retry
from asyncconsumer.handlers.replay import replay
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import SASL_OAUTH, SASL_PLAIN, SASL_SCRAM, Kafka, Listener
from tests.integration.net.test_connect import forms
from tests.net.test_connect import KnownToken
from tests.support.helpers import until
from tests.support.real_apps import send
from tests.support.real_consumer import QUICK


@pytest.fixture(scope="module")
def secured() -> Iterator[Kafka]:
    kafka = Kafka(listeners=(SASL_PLAIN, SASL_SCRAM, SASL_OAUTH))
    with asyncio.Runner() as runner:
        runner.run(kafka.start())
    yield kafka
    with asyncio.Runner() as runner:
        runner.run(kafka.stop())


@pytest.mark.parametrize(
    "listener", [SASL_PLAIN, SASL_SCRAM, SASL_OAUTH], ids=lambda listener: listener.name
)
async def test_no_log_of_an_app_contains_a_secret(
    secured: Kafka, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    kafka = KafkaHandle(secured, "secured")
    topic, waiting, dead = await kafka.topic(), await kafka.topic(), await kafka.topic()
    settings: dict[str, Any] = dict(secured.client_settings(listener))
    if listener is SASL_OAUTH:
        token = KnownToken(await settings["sasl_oauth_token_provider"].token())
        settings["sasl_oauth_token_provider"], secret = token, token.known
    else:
        secret = settings["sasl_plain_password"]
    group, seen = kafka.group(), list[bytes | None]()

    def make() -> ConsumerApp:
        app = ConsumerApp(**{**QUICK, **settings, "group_id": group})
        retry = Retry(2, topic=waiting, delay_ms=1)

        @app.handler(topic, retry=retry, dead_letter_topic=dead)
        async def handle(record: Record) -> None:
            seen.append(record.value)
            raise ValueError("no")

        return app

    await send(kafka, topic, [b"bad"], keys=1)
    async with make() as app:
        await until(
            lambda: [health.dead_letters for health in app.health().handlers.values()] == [1]
        )
    assert (await replay(make(), send=True)).counts.total() == 1
    assert len(seen) == 2
    shown = [f"{record.getMessage()} {record.args!r} {record!r}" for record in caplog.records]
    assert len(shown) > 10, "nothing was logged, so no log was checked"
    text = "\n".join(shown)
    for form in forms(secret):
        assert form not in text
