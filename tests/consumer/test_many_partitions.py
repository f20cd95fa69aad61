"""The number of steps grows linearly with the number of partitions.

A step is an executed line of code. A scan of all partitions for each of them would multiply them.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from types import FrameType
from typing import Any

import pytest

from asyncconsumer import Consumer
from asyncconsumer.buffer.budget import Budget
from asyncconsumer.buffer.channel import Channel
from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.group.zookeeper.assignors import (
    GroupInfo,
    GroupMemberInfo,
    by_range,
    round_robin,
)
from asyncconsumer.group.zookeeper.sticky import sticky
from asyncconsumer.protocol.subscription_codec import StickyUserData
from asyncconsumer.streams.routes import SharedRoutes
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import FakeCluster
from asyncconsumer.testing.fake_kafka.groups import GroupCluster
from asyncconsumer.testing.virtual_time import run
from asyncconsumer.types import TopicPartition
from tests.support.chunks import chunk
from tests.support.fake_consumer import environment, make_consumer

pytestmark = pytest.mark.fast
FEW = 60
Operation = Callable[[], Awaitable[None]]


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the lines that run in the package, without those of the fakes."""
    lines = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if "asyncconsumer/" not in name or "/testing/" in name:
            return None
        lines[0] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


async def settled(consumer: Consumer[Any, Any], partitions: int) -> None:
    while len(consumer.assignment) != partitions:
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)


@asynccontextmanager
async def joined(
    cluster: FakeCluster, number: int, **options: Any
) -> AsyncIterator[Consumer[Any, Any]]:
    async with make_consumer(cluster, enable_auto_commit=False, **options) as consumer:
        await settled(consumer, number)
        yield consumer


@asynccontextmanager
async def stop_at(cluster: FakeCluster, number: int) -> AsyncIterator[Operation]:
    async with make_consumer(cluster, stop_at="end", enable_auto_commit=False) as consumer:

        async def operation() -> None:
            assert [record async for record in consumer] == []

        yield operation


@asynccontextmanager
async def streams(cluster: FakeCluster, number: int) -> AsyncIterator[Operation]:
    async with joined(cluster, number) as consumer:

        async def operation() -> None:
            consumer.streams(4)

        yield operation


@asynccontextmanager
async def seeks(cluster: FakeCluster, number: int) -> AsyncIterator[Operation]:
    async with joined(cluster, number) as consumer:

        async def operation() -> None:
            for n in range(number):
                consumer.seek(TopicPartition("t", n), 0)

        yield operation


@asynccontextmanager
async def pauses(cluster: FakeCluster, number: int) -> AsyncIterator[Operation]:
    async with joined(cluster, number) as consumer:

        async def operation() -> None:
            for n in range(number):
                consumer.pause(TopicPartition("t", n))
            for n in range(number):
                consumer.resume(TopicPartition("t", n))

        yield operation


@asynccontextmanager
async def subscribe(cluster: FakeCluster, number: int) -> AsyncIterator[Operation]:
    consumer = make_consumer(cluster, enable_auto_commit=False)

    async def operation() -> None:
        await consumer.__aenter__()
        await settled(consumer, number)

    yield operation
    await consumer.__aexit__(None, None, None)


@asynccontextmanager
async def commits(cluster: FakeCluster, number: int) -> AsyncIterator[Operation]:
    async with joined(cluster, number) as consumer:

        async def operation() -> None:
            assert len(await consumer.commit()) == number

        yield operation


@asynccontextmanager
async def idles(cluster: FakeCluster, number: int) -> AsyncIterator[Operation]:
    async with joined(cluster, number) as consumer:

        async def operation() -> None:
            await asyncio.sleep(5)
            assert len(consumer.assignment) == number

        yield operation


@asynccontextmanager
async def rebalance(
    cluster: FakeCluster, number: int, assignor: str = "range"
) -> AsyncIterator[Operation]:
    async with joined(cluster, number, partition_assignment_strategy=assignor) as consumer:
        two = make_consumer(
            cluster,
            enable_auto_commit=False,
            environment=environment(cluster, 3),
            partition_assignment_strategy=assignor,
        )

        async def operation() -> None:
            await two.__aenter__()
            await settled(two, number // 2)
            await settled(consumer, number // 2)

        yield operation
        await two.__aexit__(None, None, None)


Case = Callable[[FakeCluster, int], AbstractAsyncContextManager[Operation]]


def lines_of(case: Case, number: int) -> int:
    reported: list[int] = []

    async def measure() -> None:
        async with GroupCluster(Random(1), brokers=1) as cluster:
            cluster.add_topic("t", number)
            async with case(cluster, number) as operation:
                with counted() as lines:
                    await operation()
                reported.extend(lines)

    run(measure, seed=1)
    return reported[0]


@pytest.mark.parametrize(
    "case",
    [
        stop_at,
        streams,
        seeks,
        pauses,
        commits,
        idles,
        subscribe,
        rebalance,
        partial(rebalance, assignor="sticky"),
        partial(rebalance, assignor="cooperative-sticky"),
    ],
)
def test_the_steps_of_operations_grow_linearly_with_partitions(case: Case) -> None:
    few, many = lines_of(case, FEW), lines_of(case, 2 * FEW)
    assert many < 2.3 * few


@pytest.mark.parametrize("strategy", [by_range, round_robin, sticky])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_steps_of_zookeeper_strategies_grow_linearly(strategy: Any, *, sparse: bool) -> None:
    """Members that each read a topic of their own are included: most threads are skipped."""

    def lines_for(number: int) -> int:
        topics = [f"t{n:03}-{number:03}" if sparse else f"t-{number:03}" for n in range(number)]
        members = [GroupMemberInfo(f"g_m{n:03}", {topic: 1}) for n, topic in enumerate(topics)]
        group = GroupInfo(members, {topic: range(4) for topic in topics})
        with counted() as lines:
            strategy(group)
        return lines[0]

    assert lines_for(80) < 2.5 * lines_for(40)


@pytest.mark.parametrize(
    "assignor",
    [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor],
    ids=lambda member: member.name,
)
@pytest.mark.parametrize("alike", [True, False])
def test_the_steps_of_assignors_grow_linearly_with_partitions(
    assignor: type[Assignor], *, alike: bool
) -> None:
    """A member joins ten members that own partitions, with equal or different subscriptions."""

    def lines_for(number: int) -> int:
        topics = {"t": number, "u": number}
        item = assignor()
        members = {
            f"m{n}": MemberSubscription(["t", "u"] if alike or n % 2 else ["t"]) for n in range(10)
        }
        had = {
            member: replace(
                members[member],
                owned_partitions=values,
                generation_id=1,
                user_data=StickyUserData(values, 1).encode() if item.name == "sticky" else None,
            )
            for member, values in item.assign(topics, members).items()
        }
        with counted() as lines:
            options = item.assign(topics, had | {"new": MemberSubscription(["t", "u"])})
        assert sum(map(len, options.values())) > number
        return lines[0]

    assert lines_for(400) < 2.5 * lines_for(200)


class Compared(Stream):
    """A stream that counts how often it is compared with others."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Compared.compared += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)


async def test_the_route_of_a_partition_is_found_without_comparisons() -> None:
    budget = Budget(1000)
    spread = SharedRoutes([Compared(Channel(budget)) for _ in range(4)])
    Compared.compared = 0
    for n in range(100):
        spread.of(TopicPartition("t", n), 0)
    assert Compared.compared == 0
    results = [spread.of(TopicPartition("t", n), 0) for n in range(100)]
    assert (
        sorted(sum(member is stream for member in results) for stream in spread.all()) == [25] * 4
    )


async def test_has_room_does_not_scan_held_partitions() -> None:
    def lines_for(number: int) -> int:
        channel = Channel(Budget(10**6))
        for n in range(number):
            tp = TopicPartition("t", n)
            channel.push(chunk(tp, 0))
            channel.hold(tp)
        with counted() as lines:
            assert channel.has_room()
        return lines[0]

    assert lines_for(100) == lines_for(10)
