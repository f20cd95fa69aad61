"""Consumers with the KIP-848 protocol, and brokers without it."""

import pytest

from asyncconsumer.testing.handles import KafkaHandle, KafkaWithZooKeeper
from tests.support.helpers import until
from tests.support.real_consumer import make_consumer, reading, send, take

KIP848 = {"group_protocol": "consumer"}


async def test_kip848_rebalances_lose_and_repeat_no_record(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    await send(kafka, topic, range(200), 4)
    async with (
        make_consumer(kafka, topic, group_id=group, **KIP848) as first,
        reading(first) as offsets,
    ):
        await until(lambda: len(offsets) == 200)
        async with (
            make_consumer(kafka, topic, group_id=group, **KIP848) as second,
            reading(second) as other,
        ):
            await until(lambda: len(first.assignment) == len(second.assignment) == 2)
            await send(kafka, topic, range(200, 400), 4)
            await until(lambda: len(offsets) + len(other) >= 400)
        await until(lambda: len(first.assignment) == 4)
        await send(kafka, topic, range(400, 500), 4)
        await until(lambda: len(offsets) + len(other) >= 500)
    assert sorted(offsets + other) == list(range(500))


async def test_a_pattern_is_evaluated_by_the_broker(kafka: KafkaHandle) -> None:
    topic = await kafka.topic()
    await send(kafka, topic, range(3))
    options = {"group_id": kafka.group(), **KIP848}
    async with make_consumer(kafka, pattern=topic.replace("-", "[-]"), **options) as consumer:
        assert await take(consumer, 3) == [0, 1, 2]


async def test_the_classic_protocol_is_used_if_brokers_lack_kip848(
    kafka_zk: KafkaWithZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await kafka_zk.topic(partitions=2)
    await send(kafka_zk, topic, range(6), 2)
    async with make_consumer(kafka_zk, topic, group_id=kafka_zk.group(), **KIP848) as consumer:
        assert sorted(await take(consumer, 6)) == list(range(6))
        assert await consumer.commit()
    assert "continuing with the classic protocol" in caplog.text
