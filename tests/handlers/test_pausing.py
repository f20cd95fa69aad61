"""Apps that are paused and resumed, on a Kafka cluster within the process."""

import asyncio
from typing import Any

import pytest

from asyncconsumer import AppState, Consumer, ConsumerApp, Record, Retry, TopicPartition
from asyncconsumer.errors import ClosedError
from asyncconsumer.testing.virtual_time import simulated
from tests.support.worlds.handlers import until

pytestmark = pytest.mark.fast


class Bills:
    """An app whose handler takes a second for each record."""

    def __init__(self, **handling: Any) -> None:
        self.begun: list[str] = []
        self.finished: list[str] = []
        self.fails: set[str] = set()
        self.app = ConsumerApp(bootstrap_servers="k:1", group_id="billing")

        @self.app.handler("orders", **handling)
        async def bill(record: Record, order: str) -> None:
            self.begun.append(order)
            await asyncio.sleep(1)
            if order in self.fails:
                raise LookupError("no such customer")
            self.finished.append(order)


@pytest.mark.parametrize("handling", [{}, {"ordering": "none", "concurrency": 2}])
@simulated(seeds=range(3))
async def test_a_paused_app_finishes_running_calls_and_starts_no_others(
    handling: dict[str, Any],
) -> None:
    bills = Bills(**handling)
    app = bills.app
    async with app.testing() as kafka:
        for number in range(6):
            await kafka.send("orders", str(number), key="ann" if not handling else str(number))
        await until(lambda: bills.begun)
        assigned = app.consumer.assignment
        app.pause()
        app.pause()  # no effect
        begun = list(bills.begun)
        await kafka.send("orders", "later", key="bob")
        await asyncio.sleep(600)  # much longer than the session timeout
        assert bills.begun == bills.finished == begun
        assert 0 < len(begun) < 6
        assert kafka.committed("billing") == {TopicPartition("orders", 0): len(begun)}
        assert app.is_paused
        assert app.consumer.assignment == assigned
        app.resume()
        await kafka.settled()
        assert sorted(bills.finished) == [*"012345", "later"]


@simulated(seeds=range(3))
async def test_partitions_assigned_to_a_paused_app_are_paused() -> None:
    bills = Bills()
    async with bills.app.testing(partitions=4) as kafka:
        async with Consumer("orders", group_id="billing", **kafka.options) as other:
            await other.wait_assigned()
            await until(lambda: len(bills.app.consumer.assignment) == 2)
            bills.app.pause()
        await until(lambda: len(bills.app.consumer.assignment) == 4)
        for partition in range(4):
            await kafka.send("orders", str(partition), partition=partition)
        await asyncio.sleep(60)
        assert bills.begun == []
        bills.app.resume()
        await kafka.settled()
        assert sorted(bills.finished) == [*"0123"]


@simulated(seeds=range(3))
async def test_a_local_retry_waits_until_the_app_is_resumed() -> None:
    bills = Bills(retry=Retry(3, backoff_ms=10))
    bills.fails = {"bad"}
    async with bills.app.testing() as kafka:
        await kafka.send("orders", "bad")
        await until(lambda: bills.begun)
        bills.app.pause()
        await asyncio.sleep(60)
        assert len(bills.begun) == 1
        bills.fails.clear()
        bills.app.resume()
        await kafka.settled()
        assert bills.begun == ["bad", "bad"]


@simulated(seeds=range(2))
async def test_resume_leaves_partitions_paused_that_the_consumer_has_paused() -> None:
    bills = Bills()
    async with bills.app.testing(partitions=2) as kafka:
        await bills.app.consumer.wait_assigned()
        await until(lambda: len(bills.app.consumer.assignment) == 2)
        bills.app.consumer.pause(TopicPartition("orders", 0))
        bills.app.pause()
        bills.app.resume()
        for partition in range(2):
            await kafka.send("orders", str(partition), partition=partition)
        await asyncio.sleep(60)
        assert bills.finished == ["1"]
        bills.app.pause()
        bills.app.consumer.resume(TopicPartition("orders", 0))
        await asyncio.sleep(60)
        assert bills.finished == ["1"]
        bills.app.resume()
        await kafka.settled()
        assert bills.finished == ["1", "0"]


@simulated(seeds=range(1))
async def test_a_paused_app_is_alive_and_not_ready() -> None:
    bills = Bills()
    app = bills.app
    async with app.testing():
        await until(lambda: app.status().ready)
        app.pause()
        health, status = app.health(), app.status()
        assert (bool(health), health.state) == (False, AppState.PAUSED)
        assert health.reason == status.reason == "the app is paused until `resume` is called"
        assert (status.live, status.ready, status.state) == (True, False, "paused")
        app.resume()
        assert app.health()
        assert app.status().ready
        app.pause()
        await app.drain()
        assert app.health().state is AppState.DRAINING
    assert not app.is_paused
    for call in (app.pause, app.resume):
        with pytest.raises(ClosedError):
            call()
    async with app.testing() as kafka:  # opened again, it is not paused
        await kafka.send("orders", "1")
        await kafka.settled()
    assert bills.finished == ["1"]


@simulated(seeds=range(3))
async def test_topics_are_paused_by_name_also_after_a_rebalance() -> None:
    begun: list[str] = []
    app = ConsumerApp(bootstrap_servers="k:1", group_id="billing")

    @app.handler("orders", "payments")
    async def work(record: Record, value: str) -> None:
        begun.append(f"{record.topic} {value}")

    async with app.testing(partitions=2) as kafka:
        async with Consumer("orders", "payments", group_id="billing", **kafka.options) as other:
            await other.wait_assigned()
            app.pause("orders")
            app.pause("refunds")  # not read yet
            assert app.paused_topics == {"orders", "refunds"}
            assert not app.is_paused
        await until(lambda: len(app.consumer.assignment) == 4)
        for partition in range(2):
            await kafka.send("orders", str(partition), partition=partition)
            await kafka.send("payments", str(partition), partition=partition)
        await asyncio.sleep(60)
        assert sorted(begun) == ["payments 0", "payments 1"]
        app.pause()
        app.resume("orders")
        await asyncio.sleep(60)
        assert len(begun) == 2  # all topics are still paused
        app.resume()
        await kafka.settled()
        assert sorted(begun) == ["orders 0", "orders 1", "payments 0", "payments 1"]
        assert app.paused_topics == frozenset()
    assert app.paused_topics == frozenset()


@simulated(seeds=range(2))
async def test_resume_without_topics_resumes_those_paused_by_name() -> None:
    bills = Bills()
    async with bills.app.testing() as kafka:
        bills.app.pause("orders")
        await kafka.send("orders", "1")
        await asyncio.sleep(60)
        assert bills.begun == []
        assert bills.app.status().ready
        bills.app.resume()
        await kafka.settled()
        assert bills.finished == ["1"]
