"""Apps and consumers that are tested without a broker, in virtual time."""

import asyncio
from typing import Any

import pytest

from asyncconsumer import Admin, Consumer, ConsumerApp, Producer, Record, Retry, TopicPartition
from asyncconsumer.environment import Environment
from asyncconsumer.errors import ConfigError
from asyncconsumer.testing import FakeKafka
from asyncconsumer.testing.fake_kafka.broker import Fate
from asyncconsumer.testing.virtual_time import simulated

pytestmark = [pytest.mark.fast, pytest.mark.timeout(60)]
PRODUCE, COMMIT = 0, 8


def make_app(**options: object) -> ConsumerApp:
    return ConsumerApp(bootstrap_servers="kafka.example:9092", group_id="billing", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@simulated(seeds=range(3))
async def test_an_app_with_default_options_runs_in_virtual_time(protocol: str) -> None:
    app, seen = make_app(group_protocol=protocol), []

    @app.handler("orders")
    async def bill(record: Record) -> None:
        await asyncio.sleep(60)
        seen.append(record.key)

    async with app.testing(partitions=3) as kafka:
        for key in ("ann", "bob", "ann"):
            await kafka.send("orders", {"from": key}, key=key)
        await kafka.settled(timeout=300)
    assert set(seen) == {b"ann", b"bob"}
    assert len(seen) == 3


@simulated(seeds=range(3))
async def test_a_default_consumer_runs_in_virtual_time() -> None:
    async with FakeKafka() as kafka:
        await kafka.send("orders", "an order")
        options = {"group_id": "g", "auto_offset_reset": "earliest", **kafka.options}
        async with Consumer("orders", **options) as consumer:
            async for record in consumer:
                assert record.value == b"an order"
                break
        await kafka.settled()


@simulated(seeds=range(3))
async def test_a_producer_writes_each_record_once_despite_lost_responses() -> None:
    async with FakeKafka(partitions=2, brokers=2) as kafka:
        for fate in (Fate.LOST_AFTER, Fate.LOST_BEFORE, Fate.LOST_AFTER):
            kafka.cluster.lose_next(PRODUCE, fate)
        async with Producer(compression_type="gzip", **kafka.options) as producer:
            for number in range(10):
                await producer.send("orders", {"id": number}, key=str(number))
        ids = sorted(record.json()["id"] for record in kafka.published("orders"))
        assert ids == list(range(10))


@simulated(seeds=range(1))
async def test_an_hour_in_a_retry_topic_takes_no_real_time() -> None:
    app, calls = make_app(), []
    clock = asyncio.get_running_loop().time

    @app.handler("orders", retry=Retry(2, topic="orders-retry", delay_ms=3_600_000))
    async def bill(record: Record) -> None:
        calls.append(clock())
        if len(calls) == 1:
            raise ValueError("no such customer")

    async with app.testing() as kafka:
        await kafka.send("orders", "an order", key="ann")
        await kafka.settled()
        assert len(calls) == 1
        await asyncio.sleep(3_500)
        await kafka.settled()
        assert len(calls) == 1
        await asyncio.sleep(200)
        await kafka.settled()
        assert len(calls) == 2
        assert calls[1] - calls[0] >= 3_600


@simulated(seeds=range(1))
async def test_a_plain_function_is_refused_in_virtual_time() -> None:
    app = make_app()

    @app.handler("orders")
    def bill(record: Record) -> None: ...

    with pytest.raises(ConfigError, match="virtual time has no threads"):
        async with app.testing():
            pass


@simulated(seeds=range(3))
async def test_a_dead_broker_and_a_moved_leader_lose_no_record() -> None:
    app, seen = make_app(), set()

    @app.handler("orders", dead_letter_topic="dead")
    async def bill(record: Record) -> None:
        seen.add((record.partition, record.offset))
        raise ValueError("no such customer")

    async with app.testing(partitions=3, brokers=3) as kafka:
        for number in range(9):
            await kafka.send("orders", str(number), partition=number % 3)
        kafka.cluster.kill(1)
        await kafka.settled(timeout=300)
        kafka.cluster.start(1)
        kafka.cluster.move_leader(TopicPartition("orders", 0), 2)
        kafka.cluster.slow(3, 0.5)
        for number in range(9):
            await kafka.send("orders", str(number), partition=number % 3)
        await kafka.settled(timeout=300)
        assert len(seen) == 18
        assert {record.value for record in kafka.published("dead")} == {
            b"%d" % number for number in range(9)
        }


@simulated(seeds=range(3))
async def test_a_lost_response_writes_a_dead_letter_once() -> None:
    app = make_app()

    @app.handler("orders", dead_letter_topic="dead")
    async def bill(record: Record) -> None:
        raise ValueError("no such customer")

    async with app.testing() as kafka:
        kafka.cluster.lose_next(PRODUCE, Fate.LOST_AFTER)
        kafka.cluster.lose_next(PRODUCE, Fate.LOST_BEFORE)
        kafka.cluster.lose_next(COMMIT, Fate.LOST_AFTER)
        await kafka.send("orders", "an order")
        await kafka.settled(timeout=300)
        assert len(kafka.published("dead")) == 1


@simulated(seeds=range(2))
async def test_a_member_that_dies_loses_its_partitions() -> None:
    app, seen = make_app(), []

    @app.handler("orders")
    async def bill(record: Record) -> None:
        seen.append(record.value)

    async with app.testing(partitions=2) as kafka:
        async with (
            kafka.client() as process,
            Consumer("orders", group_id="billing", **kafka.options) as other,
        ):
            await other.wait_assigned()
            assert len(app.consumer.assignment) == 1
            process.disconnect()
            for number in range(2):
                await kafka.send("orders", str(number), partition=number)
            await kafka.settled(timeout=300)
            process.reconnect()
        assert set(seen) == {b"0", b"1"}


@simulated(seeds=range(2))
async def test_objects_with_default_options_run_on_the_fake_of_their_block() -> None:
    async with FakeKafka() as kafka:
        reading: dict[str, Any] = {
            "group_id": "billing",
            "auto_offset_reset": "earliest",
            **kafka.options,
        }
        async with (
            Producer(bootstrap_servers=kafka.bootstrap_servers) as producer,
            Admin(bootstrap_servers=kafka.bootstrap_servers) as admin,
            Consumer("orders", **reading) as consumer,
        ):
            await producer.send_and_wait("orders", "an order")
            record = await anext(aiter(consumer))
            assert record.value == b"an order"
            assert 0 <= kafka.cluster.now_ms() - record.timestamp < 10_000  # of virtual time
            assert "orders" in await admin.topics()
    assert Environment.current().clock is None  # real time again


async def test_the_block_of_a_fake_may_end_in_another_task() -> None:
    """The teardown of a pytest fixture may run in another task."""
    kafka = FakeKafka()
    async with asyncio.TaskGroup() as group:
        await group.create_task(kafka.__aenter__())
        assert Environment.current().clock is None
        await group.create_task(kafka.__aexit__(None, None, None))
