"""Suspension of the machine, during which the clock of the loop stops."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from asyncconsumer import Consumer
from asyncconsumer.aio.suspensions import ClockOffsets, Suspensions
from asyncconsumer.group.kip848.state import Timeouts
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_connector import fakes
from tests.support.fake_consumer import coordinating, environment, make_consumer
from tests.support.helpers import until

pytestmark = pytest.mark.fast
PROTOCOLS = ["classic", "consumer"]


class Clocks:
    """Clocks that a test moves against the monotonic one."""

    def __init__(self) -> None:
        self.boottime = self.wall = 0.0

    def __call__(self) -> ClockOffsets:
        return ClockOffsets(self.boottime, self.wall)

    def jump(self, kind: str, seconds: float) -> None:
        if kind != "wall":
            self.boottime += seconds
        self.wall += seconds


@asynccontextmanager
async def reading(protocol: str, clocks: Clocks) -> AsyncIterator[tuple[Consumer[Any, Any], Any]]:
    """Open a consumer to which one of ten records was delivered."""
    async with coordinating(protocol) as cluster:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 10)
        world = replace(environment(cluster), clock_offsets=clocks)
        async with make_consumer(cluster, environment=world, group_protocol=protocol) as consumer:
            records = aiter(consumer)
            assert (await anext(records)).offset == 0
            await asyncio.sleep(0.06)  # afterwards the stream reads the deadline again
            yield consumer, records


@simulated(range(5))
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["suspended", "wall"])
async def test_no_record_is_delivered_between_a_clock_jump_and_a_heartbeat(
    protocol: str, kind: str
) -> None:
    clocks = Clocks()
    async with reading(protocol, clocks) as (consumer, records), asyncio.TaskGroup() as group:
        clocks.jump(kind, 60.0)
        waiting = group.create_task(anext(records))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        async with asyncio.timeout(10):
            assert (await waiting).offset == 1
        assert await consumer.wait_assigned()
        assert (
            consumer.counts["rebalanced"] == 1
        )  # the coordinator knew the member, so no partition was lost


@simulated(range(3))
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seconds", [0.05, -3600.0])
async def test_slow_and_backward_clock_changes_do_not_delay_records(
    protocol: str, seconds: float
) -> None:
    clocks = Clocks()
    async with reading(protocol, clocks) as (_, records):
        clocks.jump("wall", seconds)
        began = asyncio.get_running_loop().time()
        assert (await anext(records)).offset == 1
        assert asyncio.get_running_loop().time() == began


@simulated(range(3))
async def test_a_zookeeper_session_counts_suspended_time() -> None:
    clocks = Clocks()
    async with fakes(1) as world:
        world.cluster.append("t", 0, 10)
        connector = world.connector()
        made = replace(connector._outside, clock_offsets=clocks)
        async with made.run(type(connector), connector.config) as consumer_connector:
            ((stream,),) = (await consumer_connector.create_message_streams({"t": 1})).values()
            records: Any = aiter(stream)
            assert (await anext(records)).offset == 0
            await asyncio.sleep(0.06)
            clocks.jump("suspended", 60.0)
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(anext(records))
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not waiting.done()
                await until(waiting.done)
            assert waiting.result().offset == 1


@simulated([1])
async def test_each_timeout_counts_the_suspended_time_since_its_start() -> None:
    clocks = Clocks()
    suspensions = Suspensions(clocks)
    timeouts = Timeouts(40.0, 100.0, suspensions)
    before = asyncio.get_running_loop().time()
    await asyncio.sleep(1)
    clocks.jump("suspended", 10.0)
    clocks.jump("wall", 5.0)
    assert suspensions.since(before) == 15.0
    assert suspensions.since(before, certain=True) == 10.0
    await asyncio.sleep(1)
    after = asyncio.get_running_loop().time()
    assert suspensions.since(after) == 0.0
    assert timeouts.end(before, 40.0) == pytest.approx(before + 36.0 - 15.0)
    assert timeouts.end(after, 40.0) == pytest.approx(after + 36.0)
    assert timeouts.end(inf, 40.0) == inf
