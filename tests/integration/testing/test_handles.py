"""The fixtures of real brokers: sending, reading and waiting."""

from contextlib import suppress
from typing import Any

import pytest

from asyncconsumer import ConsumerApp, Producer
from asyncconsumer.testing import NotSettled
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.real_consumer import QUICK


async def test_a_handle_sends_records_waits_and_reads_results(kafka: KafkaHandle) -> None:
    orders, billed = await kafka.topic(partitions=3), await kafka.topic()
    app = ConsumerApp(bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group(), **QUICK)
    kafka.group()  # a group that reads another topic

    @app.handler(orders, publish=billed)
    async def bill(order: dict[str, int]) -> dict[str, int]:
        return {"total": order["amount"] * 2}

    async with app:
        for number in range(5):
            place = await kafka.send(
                orders, {"amount": number}, key=f"customer-{number}", headers={"h": "1"}
            )
            assert place.topic == orders
        await kafka.settled()
        records = await kafka.read(billed)
        assert sorted(record.json()["total"] for record in records) == [0, 2, 4, 6, 8]
        assert {record.key for record in records} == {b"customer-%d" % n for n in range(5)}
        [first] = [record for record in await kafka.read(orders) if record.key == b"customer-0"]
        assert (first.json(), first.header("h")) == ({"amount": 0}, b"1")
    assert await kafka.read("no-such-topic") == []


async def test_not_settled_describes_pending_records(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await kafka.send(topic, "first")
    with pytest.raises(NotSettled, match=f"'{topic}' was not read by '{group}'"):
        await kafka.settled(timeout=0.3)
    app = ConsumerApp(bootstrap_servers=kafka.bootstrap_servers, group_id=group, **QUICK)

    @app.handler(topic)
    async def handle(value: str) -> None: ...

    async with app:
        await kafka.settled()
    await kafka.send(topic, "second")
    with pytest.raises(NotSettled, match=f"'{group}' has not committed 1 record of {topic}.*from"):
        await kafka.settled(group, timeout=0.3)


async def test_read_returns_only_records_of_committed_transactions(kafka: KafkaHandle) -> None:
    topic, group = await kafka.topic(), kafka.group()
    options: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers}
    async with Producer(transactional_id=group, **options) as producer:
        async with producer.transaction():
            await producer.send(topic, "committed")
        with suppress(LookupError):
            async with producer.transaction():
                await producer.send(topic, "aborted")
                await producer.flush()
                raise LookupError
    await kafka.send(topic, "last")
    assert [record.text() for record in await kafka.read(topic)] == ["committed", "last"]
