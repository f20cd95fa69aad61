"""A consumer of a real SASL_SSL broker that only environment variables or a file configure."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncconsumer import Consumer
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers import SASL_SCRAM, Kafka
from tests.support.helpers import produce


@pytest.fixture(scope="module")
def secured() -> Iterator[Kafka]:
    kafka = Kafka(listeners=(SASL_SCRAM,))
    with asyncio.Runner() as runner:
        runner.run(kafka.start())
    yield kafka
    with asyncio.Runner() as runner:
        runner.run(kafka.stop())


def variables(kafka: Kafka) -> dict[str, str]:
    """Return the settings of a client as text, with the authority as a PEM string."""
    assert kafka.certificates is not None
    settings = {name: str(value) for name, value in kafka.client_settings(SASL_SCRAM).items()}
    del settings["ssl_context"]
    settings["ssl_cafile"] = kafka.certificates.authority_file.read_text()
    return settings


async def read(consumer: Consumer) -> list[bytes | None]:
    async with consumer:
        return [record.value async for record in consumer]


async def test_environment_variables_configure_a_consumer(
    secured: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    handle = KafkaHandle(secured, "secured")
    topic = await handle.topic()
    await produce(topic, [b"a", b"b"], bootstrap_servers=handle.bootstrap_servers)
    settings = variables(secured)
    for name, value in {
        **settings,
        "group_id": handle.group(),
        "auto_offset_reset": "earliest",
        "max_records": "2",
    }.items():
        monkeypatch.setenv(f"ASYNCCONSUMER_{name.upper()}", value)
    consumer = Consumer.from_env(topic)
    assert sorted(await read(consumer), key=str) == [b"a", b"b"]
    texts = (caplog.text, repr(consumer), repr(consumer.config))
    assert not [text for text in texts if settings["sasl_plain_password"] in text]


async def test_a_java_properties_file_configures_a_consumer(secured: Kafka, tmp_path: Path) -> None:
    handle = KafkaHandle(secured, "secured")
    topic = await handle.topic()
    await produce(topic, [b"a", b"b"], bootstrap_servers=handle.bootstrap_servers)
    settings = variables(secured)
    path = tmp_path / "client.properties"
    login = 'username="{sasl_plain_username}" password="{sasl_plain_password}"'
    path.write_text(
        f"bootstrap.servers={settings['bootstrap_servers']}\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f"    {login.format(**settings)};\n"
        "ssl.truststore.type=PEM\n"
        "ssl.truststore.certificates="
        + settings["ssl_cafile"].strip().replace("\n", " \\\n")
        + "\n"
        f"group.id={handle.group()}\n"
        "auto.offset.reset=earliest\n"
    )
    assert sorted(await read(Consumer.from_config(path, topic, max_records=2)), key=str) == [
        b"a",
        b"b",
    ]
