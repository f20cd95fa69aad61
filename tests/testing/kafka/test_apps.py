"""Apps that are tested without a broker, in real time."""

import asyncio
import threading
from typing import Any

import pytest

from asyncconsumer import Consumer, ConsumerApp, ConsumerError, Record, Retry, TopicPartition
from asyncconsumer.errors import ConfigError
from asyncconsumer.testing import FakeKafka, NotSettled

pytestmark = [pytest.mark.fast, pytest.mark.timeout(60)]


def make_app(**options: Any) -> ConsumerApp:
    settings = {"bootstrap_servers": "kafka.example:9092", "group_id": "billing"}
    return ConsumerApp(**(settings | options))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_an_app_processes_and_commits_sent_records(protocol: str) -> None:
    app, seen = make_app(group_protocol=protocol), []

    @app.handler("orders")
    async def bill(order: dict[str, int], record: Record) -> None:
        seen.append((record.key, order))

    before = set(threading.enumerate())
    async with app.testing() as kafka:
        await kafka.send("orders", {"id": 1}, key="ann")
        await kafka.settled()
        assert seen == [(b"ann", {"id": 1})]
        assert kafka.committed("billing") == {TopicPartition("orders", 0): 1}
    assert set(threading.enumerate()) == before


async def test_an_app_has_its_own_options_again_after_the_test() -> None:
    app = make_app(allowed_hosts="kafka.example")

    @app.handler("orders")
    async def bill(record: Record) -> None: ...

    for _ in range(2):
        async with app.testing() as kafka:
            await kafka.send("orders", "an order")
            await kafka.settled()
    with pytest.raises(ConsumerError, match=r"kafka\.example"):
        async with asyncio.timeout(20), app:
            pass


async def test_a_failed_record_is_dead_lettered() -> None:
    app = make_app()

    @app.handler("orders", dead_letter_topic="dead", retry=Retry(2, backoff_ms=1))
    async def bill(record: Record) -> None:
        raise ValueError("no such customer")

    async with app.testing() as kafka:
        await kafka.send("orders", "an order", key="ann", headers={"trace": "1"})
        await kafka.settled()
        [dead] = kafka.published("dead")
        assert (dead.key, dead.value, dead.header("trace")) == (b"ann", b"an order", b"1")
        assert dead.header("dlt.error.message") == b"no such customer"
        assert dead.header("dlt.attempts") == b"2"


async def test_settled_raises_the_error_of_the_app_once() -> None:
    app = make_app()

    @app.handler("orders")
    async def bill(record: Record) -> None:
        raise ValueError("no such customer")

    async with app.testing() as kafka:
        await kafka.send("orders", "an order")
        with pytest.raises(ConsumerError) as raised:
            await kafka.settled()
        assert isinstance(raised.value.__cause__, ValueError)
        assert kafka.committed("billing").get(TopicPartition("orders", 0), 0) == 0


async def test_the_end_of_the_block_raises_an_unseen_error() -> None:
    app, failed = make_app(), asyncio.Event()

    @app.handler("orders")
    async def bill(record: Record) -> None:
        failed.set()
        raise ValueError("no such customer")

    async def test() -> None:
        async with app.testing() as kafka:
            await kafka.send("orders", "an order")
            await failed.wait()

    with pytest.raises(ConsumerError, match="bill"):
        await test()


async def test_the_error_of_the_test_is_not_replaced() -> None:
    app, failed = make_app(), asyncio.Event()

    @app.handler("orders")
    async def bill(record: Record) -> None:
        failed.set()
        raise ValueError("no such customer")

    async def test() -> None:
        async with app.testing() as kafka:
            await kafka.send("orders", "an order")
            await failed.wait()
            raise AssertionError("of the test")

    with pytest.raises(AssertionError, match="of the test"):
        await test()


async def test_settled_reports_pending_records() -> None:
    app, going, both = make_app(), asyncio.Event(), asyncio.Barrier(3)

    @app.handler("orders")
    async def bill(record: Record) -> None:
        await both.wait()
        await going.wait()

    async with app.testing() as kafka:
        await kafka.send("orders", "an order", key="ann")
        await kafka.send("orders", "an order", key="bob")
        await kafka.send("other", "nobody reads this")
        await both.wait()
        with pytest.raises(NotSettled) as raised:
            await kafka.settled(timeout=0.2)
        going.set()
        await kafka.settled("billing")
    message = str(raised.value)
    assert "'billing' has not committed 2 records of orders[0], from offset 0" in message
    assert "handler" in message
    assert "2 calls run" in message
    assert "no group has read 'other'" in message


async def test_a_record_may_wait_in_a_retry_topic() -> None:
    app, calls, broken = make_app(), [], True

    @app.handler("orders", retry=Retry(3, topic="orders-retry", delay_ms=300))
    async def bill(record: Record) -> None:
        calls.append(record.value)
        if broken:
            raise ValueError("no such customer")

    async with app.testing(partitions=2) as kafka:
        tp = await kafka.send("orders", "first", key="ann")
        await kafka.settled()
        assert calls == [b"first"]
        assert kafka.committed("billing")[tp] == 1
        [waiting] = kafka.published("orders-retry")
        assert waiting.partition == tp.partition
        broken = False
        await kafka.settled(retries=True)
        assert calls == [b"first", b"first"]
        assert kafka.committed("billing")[TopicPartition("orders-retry", tp.partition)] == 1


async def test_two_apps_share_a_cluster() -> None:
    first, second, seen = make_app(), make_app(group_id="shipping"), []

    @first.handler("orders")
    async def bill(record: Record) -> None:
        seen.append(("billing", record.offset))

    @second.handler("orders")
    async def ship(record: Record) -> None:
        seen.append(("shipping", record.offset))

    async with FakeKafka(partitions=3) as kafka, first.testing(kafka), second.testing(kafka):
        await kafka.send("orders", "an order")
        await kafka.settled()
    assert sorted(seen) == [("billing", 0), ("shipping", 0)]


async def test_another_member_gets_partitions_and_returns_them() -> None:
    app = make_app(session_timeout_ms=6_000, heartbeat_interval_ms=20)
    seen: list[bytes | None] = []

    @app.handler("orders")
    async def bill(record: Record) -> None:
        seen.append(record.value)

    async with app.testing(partitions=4) as kafka:
        await app.consumer.wait_assigned()
        other = Consumer("orders", group_id="billing", heartbeat_interval_ms=20, **kafka.options)
        async with other:
            assert len(await other.wait_assigned()) == 2
            assert len(app.consumer.assignment) == 2
        for number in range(4):
            await kafka.send("orders", str(number), partition=number)
        await kafka.settled()
        assert set(seen) == {b"0", b"1", b"2", b"3"}


async def test_a_plain_function_runs_in_a_thread() -> None:
    app, seen = make_app(), []

    @app.handler("orders")
    def bill(record: Record) -> None:
        seen.append(record.value)

    async with app.testing() as kafka:
        await kafka.send("orders", b"an order")
        await kafka.settled()
    assert seen == [b"an order"]


async def test_an_app_of_a_zookeeper_group_is_refused() -> None:
    app = ConsumerApp(zookeeper_connect="z:2181", group_protocol="zookeeper", group_id="g")

    @app.handler("orders")
    async def bill(record: Record) -> None: ...

    with pytest.raises(ConfigError, match="kafka_zk"):
        async with app.testing():
            pass


async def test_members_whose_sessions_expire_continue_to_read() -> None:
    app, seen = make_app(heartbeat_interval_ms=20), []

    @app.handler("orders")
    async def bill(record: Record) -> None:
        seen.append(record.offset)

    async with app.testing() as kafka:
        await kafka.send("orders", "first")
        await kafka.settled()
        assert kafka.expire_members("billing") == 1
        await kafka.send("orders", "second")
        await kafka.settled()
    assert set(seen) == {0, 1}


async def test_a_pattern_reads_topics_that_are_created_later() -> None:
    app, seen = make_app(), []

    @app.handler(pattern="orders-.*")
    async def bill(record: Record) -> None:
        seen.append(record.topic)

    async with app.testing() as kafka:
        await kafka.send("orders-eu", "first")
        await kafka.settled()
    assert seen == ["orders-eu"]


async def test_the_values_that_a_handler_returns_are_published() -> None:
    app = make_app()

    @app.handler("orders", publish="billed")
    async def bill(order: dict[str, int]) -> dict[str, int]:
        return {"billed": order["id"]}

    async with app.testing() as kafka:
        await kafka.send("orders", {"id": 1}, key="ann")
        await kafka.settled()
        assert [record.json() for record in kafka.published("billed")] == [{"billed": 1}]
