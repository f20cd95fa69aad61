"""Dead letters on a real broker."""

from random import Random

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from asyncconsumer import Record, TopicPartition
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.consumer.dead_letters import DeadLetterProducer, Failure
from asyncconsumer.testing.handles import KafkaHandle
from tests.handlers.test_dead_letters import WRONG, dead_letter
from tests.support.consumer_members import admin_of
from tests.support.helpers import until
from tests.support.real_apps import make_app, offsets, read, send


async def test_a_dead_letter_has_the_record_and_the_failure(kafka: KafkaHandle) -> None:
    dead = await kafka.topic()
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    nothing = Record("t", 3, 8, timestamp=5, headers=[("empty", None)])
    async with DeadLetterProducer(dead, config, randomness=Random(1)) as producer:
        await producer.write(dead_letter(b"v"), WRONG)
        await producer.write(nothing, Failure(KeyError("x" * 5000)))
    first, second = await read(kafka, dead, 2)
    assert (first.key, first.value) == (b"k", b"v")
    assert first.headers[0] == ("mine", b"1")
    assert [text for name, text in first.headers if name == "dlt.topic"] == [b"t"]
    assert dict(first.headers)["dlt.attempts"] == b"3"
    assert (second.key, second.value, second.headers[0]) == (None, None, ("empty", None))
    assert len(dict(second.headers)["dlt.error.message"]) == 1000


async def test_a_record_is_committed_after_its_dead_letter_is_written(
    kafka: KafkaHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    dead = await kafka.topic(config={"max.message.bytes": "1000"})
    bad = b"bad" * 1000
    await send(kafka, topic, [bad, b"good"], keys=2)
    seen: list[bytes] = []
    app = make_app(kafka, group_id=group)

    @app.handler(topic, dead_letter_topic=dead)
    async def handle(value: bytes) -> None:
        seen.append(value)
        if value == bad:
            raise ValueError(len(value))

    tp = TopicPartition(topic, 0)
    async with app:
        await until(lambda: "failed to write" in caplog.text)
        assert await app.consumer.commit() == {tp: 0}
        async with admin_of(kafka) as admin:
            limit = {"max.message.bytes": "100000"}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, dead, limit)])
        (dead_letter,) = await read(kafka, dead, 1)
        assert dead_letter.value == bad
    assert sorted(seen) == [bad, b"good"]
    assert (await offsets(kafka, group))[tp] == 2
