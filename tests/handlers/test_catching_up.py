"""The wait for the records that are in the partitions of an app, on a cluster in the process."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from asyncconsumer import Consumer, ConsumerApp, Record, Retry
from asyncconsumer.errors import ClosedError, HandlerFailed
from asyncconsumer.testing.virtual_time import simulated
from tests.support.worlds.handlers import until

pytestmark = pytest.mark.fast


class Bills:
    """An app whose handler takes a second for each record, and fails for the order "bad"."""

    def __init__(self, **handling: Any) -> None:
        self.begun: list[str] = []
        self.finished: list[str] = []
        self.blocked: set[str] = set()
        self.app = ConsumerApp(bootstrap_servers="k:1", group_id="billing")

        @self.app.handler("orders", **handling)
        async def bill(record: Record, order: str) -> None:
            self.begun.append(order)
            await asyncio.sleep(1)
            if order == "bad":
                raise LookupError("no such customer")
            await until(lambda: order not in self.blocked)
            self.finished.append(order)


@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
@simulated(seeds=range(3))
async def test_an_app_has_caught_up_when_existing_records_are_processed(ordering: str) -> None:
    bills = Bills(ordering=ordering, concurrency=2)
    async with bills.app.testing(partitions=3) as kafka:
        for number in range(12):
            await kafka.send("orders", str(number), partition=number % 3)
        await bills.app.caught_up()
        assert sorted(bills.finished, key=int) == [str(number) for number in range(12)]
        await bills.app.caught_up()  # returns immediately


@simulated(seeds=range(3))
async def test_caught_up_does_not_wait_for_later_records() -> None:
    bills = Bills()
    bills.blocked = {"first", "later"}
    async with asyncio.TaskGroup() as group, bills.app.testing() as kafka:
        await kafka.send("orders", "first", key="1")
        await until(lambda: bills.begun)
        waiting = group.create_task(bills.app.caught_up())
        await asyncio.sleep(60)
        assert not waiting.done()  # the record is read, and its handler runs
        await kafka.send("orders", "later", key="2")
        bills.blocked.remove("first")
        async with asyncio.timeout(60):
            await waiting
        assert bills.finished == ["first"]
        bills.blocked.clear()


@simulated(seeds=range(3))
async def test_caught_up_waits_for_retries_and_the_dead_letter() -> None:
    bills = Bills(retry=Retry(3, backoff_ms=20_000), dead_letter_topic="dead")
    async with bills.app.testing() as kafka:
        await kafka.send("orders", "bad")
        await bills.app.caught_up()
        assert bills.begun == ["bad"] * 3
        assert [record.text() for record in kafka.published("dead")] == ["bad"]


@simulated(seeds=range(3))
async def test_caught_up_does_not_wait_for_records_in_a_retry_topic() -> None:
    bills = Bills(retry=Retry(3, topic="again", delay_ms=3_600_000), dead_letter_topic="dead")
    async with bills.app.testing() as kafka:
        await kafka.send("orders", "bad")
        async with asyncio.timeout(60):
            await bills.app.caught_up()
        assert bills.begun == ["bad"]
        assert [record.text() for record in kafka.published("again")] == ["bad"]


@simulated(seeds=range(3))
async def test_caught_up_does_not_wait_for_a_revoked_partition() -> None:
    bills = Bills()
    async with asyncio.TaskGroup() as group, bills.app.testing(partitions=2) as kafka:
        await until(lambda: len(bills.app.consumer.assignment) == 2)
        bills.app.pause()
        for partition in range(2):
            await kafka.send("orders", str(partition), partition=partition)
        waiting = group.create_task(bills.app.caught_up())
        async with Consumer("orders", group_id="billing", **kafka.options) as other:
            await other.wait_assigned()
            await until(lambda: len(bills.app.consumer.assignment) == 1)
            assert not waiting.done()  # the app is paused
            bills.app.resume()
            async with asyncio.timeout(60):
                await waiting
            assert len(bills.finished) == 1


@simulated(seeds=range(3))
async def test_caught_up_raises_the_error_of_the_app() -> None:
    bills = Bills()
    with suppress(HandlerFailed):  # raised again at the end of the block
        async with bills.app.testing() as kafka:
            await kafka.send("orders", "bad")
            with pytest.raises(HandlerFailed, match="LookupError"):
                await bills.app.caught_up()


@simulated(seeds=range(3))
async def test_an_app_that_is_closed_or_drained_does_not_catch_up() -> None:
    bills = Bills()
    with pytest.raises(ClosedError):
        await bills.app.caught_up()

    async def refused() -> None:
        with pytest.raises(ClosedError):
            await bills.app.caught_up()

    async with asyncio.TaskGroup() as group:
        async with bills.app.testing() as kafka:
            bills.app.pause()
            await kafka.send("orders", "1")
            waiting = group.create_task(refused())
            await asyncio.sleep(60)
            assert not waiting.done()
        await waiting
        async with bills.app.testing() as kafka:
            await bills.app.drain()
            await kafka.send("orders", "2")
            with pytest.raises(ClosedError, match="drained before the records of orders"):
                await bills.app.caught_up()
